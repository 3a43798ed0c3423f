"""What programs do with a trial that cannot be meant: it is refused or named, once."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from tests.unit.trials.conftest import NewTrial
from tests.unit.trials.recording_link import RecordingLink
from tuner.domain.messages import RemarkTopic


def test_values_of_the_study_file_cannot_be_replaced(new_trial: NewTrial) -> None:
    trial = new_trial(params={"x": 1})
    said = re.escape(
        "trial.params cannot be changed: x = 3 would not be stored with the trial. To train with "
        "another value, change a copy: params = dict(trial.params), then params['x'] = 3"
    )
    with pytest.raises(TypeError, match=said):
        trial.params.x = 3
    with pytest.raises(TypeError, match=said):
        trial.params["x"] = 3
    with pytest.raises(TypeError, match=said):
        trial.params.update(x=3)
    params = trial.params
    with pytest.raises(TypeError, match=said):
        params |= {"x": 3}
    # As the message says.
    params = dict(trial.params)
    params["x"] = 3
    assert trial.params.x == 1


def test_a_copy_of_the_parameters_takes_what_a_model_needs(
    new_trial: NewTrial, link: RecordingLink
) -> None:
    """`params = trial.params` and `Model(**params)` are common in Optuna objectives."""
    link.suggestions = {"lr": 0.5}
    trial = new_trial(params={"epochs": 3})
    trial.suggest_float("lr", 0.0, 1.0)
    params = trial.params
    params["metric"] = "auc"
    params["lr"] = params["lr"] / 2  # suggested in code, as in Optuna
    assert params.pop("epochs") == 3
    assert dict(params) == {"lr": 0.25, "metric": "auc"}
    assert trial.params == {"epochs": 3, "lr": 0.5}
    for same in (pickle.loads(pickle.dumps(trial.params)), copy.deepcopy(trial.params)):
        assert same == trial.params
        assert same.epochs == 3


@pytest.mark.parametrize(
    ("steps", "said"), [((0, 1, 1, 1), "step 1 twice"), ((0, 1, 2, 0, 1), "step 0 after step 2")]
)
def test_steps_that_are_reported_again_are_said_once(
    new_trial: NewTrial, link: RecordingLink, steps: tuple[int, ...], said: str
) -> None:
    trial = new_trial()
    for count, step in enumerate(steps):
        trial.report(0.5 + count, step)
    ((topic, text),) = link.remarks
    assert topic is RemarkTopic.REPEATED_STEPS
    assert text == (
        f"The program reports {said}. Only the first report of each step is compared with other "
        "trials. Count steps up over the whole trial, also over folds and stages, for example "
        "step=fold * epochs + epoch."
    )


def test_value_and_step_in_the_wrong_order_are_named(
    new_trial: NewTrial, link: RecordingLink
) -> None:
    trial = new_trial()
    for epoch in range(3):
        trial.report(epoch, 0.25 * epoch + 0.1)
    ((_, said),) = link.remarks
    assert said.endswith("trial.report takes the value first, report(value, step).")
