"""Tasks of public models: what a model is asked, and that it answers as the recorded tables do."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search_quality.spaces import LCBENCH_SPACE
from benchmarks.search_quality.surrogate import MODELS, model_inputs
from benchmarks.search_quality.tasks import read_task
from tuner.search_spaces import parse_space
from tuner.simulate.curves import read_table

ENCODING = {
    "task_id": {"#na#": 0, "12": 11},
    "booster": {"#na#": 0, "dart": 1, "gblinear": 2, "gbtree": 3},
    "num.impute.selected.cpo": {"#na#": 0, "impute.hist": 1, "impute.mean": 2, "impute.median": 3},
}


def test_steps_of_each_configuration_follow_one_another() -> None:
    model = MODELS["lcbench"]
    one = {"batch_size": 32, "learning_rate": 0.01, "momentum": 0.5, "weight_decay": 0.02}
    one |= {"num_layers": 3, "max_units": 128, "max_dropout": 0.25, "OpenML_task_id": "7"}
    rows = [one, {**one, "momentum": 0.9}]
    numbers, choices = model_inputs(model, {"OpenML_task_id": {"7": 3}}, rows)
    assert numbers.shape == (104, 8)
    assert numbers[:, 0].tolist() == [*range(1, 53)] * 2
    # The order of LCBench: epoch, batch size, learning rate, momentum ...
    assert numbers[51].tolist() == pytest.approx([52, 32, 0.01, 0.5, 0.02, 3, 128, 0.25])
    assert set(numbers[52:, 3].tolist()) == {np.float32(0.9)}
    assert choices.tolist() == [[3]] * 104


def test_a_parameter_that_a_configuration_lacks_is_0() -> None:
    model = MODELS["rbv2_xgboost"]
    linear = {"booster": "gblinear", "num.impute.selected.cpo": "impute.mean"}
    linear |= {"lambda": 2.0, "alpha": 3.0, "subsample": 0.5}
    rows = [{"task_id": "12", **model.fixed, **linear}]
    numbers, choices = model_inputs(model, ENCODING, rows)
    by_name = dict(zip(model.numbers, numbers[-1].tolist(), strict=True))
    assert by_name["nrounds"] == 2000.0
    assert (by_name["lambda"], by_name["alpha"], by_name["subsample"]) == (2.0, 3.0, 0.5)
    assert (by_name["trainsize"], by_name["repl"]) == (1.0, 10.0)
    assert {by_name[each] for each in ("eta", "max_depth", "rate_drop", "skip_drop")} == {0.0}
    assert choices[0].tolist() == [11, 2, 2]


def test_every_parameter_of_a_space_is_asked_for() -> None:
    for model in MODELS.values():
        asked = {*model.numbers, *model.choices}
        assert {*model.space} <= asked
        assert asked - {*model.space} == {model.task, model.step, *model.fixed}


@pytest.mark.skipif(
    not {"YAHPO_DATA", "CURVES"} <= os.environ.keys(),
    reason="YAHPO_DATA names a copy of slds-lmu/yahpo_data, CURVES a table of one of its tasks",
)
def test_the_model_answers_as_the_recorded_table() -> None:
    """The table `lcbench_34539.npz` was made of the same model."""
    recorded = read_table(Path(os.environ["CURVES"]), parse_space(LCBENCH_SPACE))
    number = Path(os.environ["CURVES"]).stem.removeprefix("lcbench_")
    curves = read_task(Path(os.environ["YAHPO_DATA"], "lcbench", number)).table
    for row in range(0, 10_000, 500):
        of_model = curves.curve(recorded.params(row)).values
        assert of_model == pytest.approx(recorded.values[row], abs=0.01)
