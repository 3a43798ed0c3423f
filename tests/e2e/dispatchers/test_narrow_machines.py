"""Machines with unlike numbers of devices on one study: each runs the trials that fit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.dispatchers.test_fleet import trials_of
from tests.e2e.study_folder import Ended, Running, StudyFolder, wait_until
from tests.servers import Server
from tuner.errors import EXIT_BUDGET_REACHED, EXIT_STUDY_FAILED

#: Tells how many devices it needs, and ends once the file of its width is there.
GATED = [
    "sh",
    "-c",
    "touch begun-{w}; until [ -e go-{w} ]; do sleep 0.05; done; echo '{{\"value\": {w}}}'",
]
QUICK = ["sh", "-c", "echo '{{\"value\": {w}}}'"]


@pytest.fixture
def shared(postgresql: Server, study_folder: StudyFolder) -> Iterator[StudyFolder]:
    url = postgresql.new_database()
    study_folder.env["STORAGE"] = url
    yield study_folder
    study_folder.end_all()
    postgresql.drop_database(url)


def a_study(folder: StudyFolder, n_trials: int, command: list[str], **keys: object) -> None:
    """Trials of one, two and four devices, and others by a second parameter."""
    folder.study(
        **{
            "storage": "${STORAGE}",
            "trial": {"command": command, "resources": {"cpus": "{w}"}},
            "search_space": {
                "w": {"type": "categorical", "choices": [1, 2, 4]},
                "x": {"type": "float", "low": 0, "high": 1},
            },
            "pruner": "none",
            "devices": None,
            "budget": {"trials": n_trials},
            **keys,
        }
    )


def on(folder: StudyFolder, n_devices: int) -> Running:
    return folder.start("--set", f"devices=cpu:{n_devices}")


def widths_of(ended: Ended | Running) -> list[int]:
    """How many devices each trial had that this dispatcher has started."""
    started = [line for line in ended.out.splitlines() if ": started on" in line]
    return [line.count("cpu:") for line in started]


def check_all_are_done(folder: StudyFolder, n_trials: int) -> None:
    trials = trials_of(folder)
    assert [trial.number for trial in trials] == list(range(n_trials))
    assert {trial.state.name for trial in trials} == {"COMPLETE"}
    assert {trial.params["w"] for trial in trials} == {1, 2, 4}
    assert all(trial.value == trial.params["w"] for trial in trials)


def test_a_narrower_machine_joins_and_runs_what_fits(shared: StudyFolder) -> None:
    a_study(shared, 30, QUICK)
    wide = on(shared, 4)
    wait_until(lambda: ": started on" in wide.out, "the wide one works")
    narrow = on(shared, 1)
    ended = [each.wait() for each in (wide, narrow)]
    assert [each.code for each in ended] == [EXIT_BUDGET_REACHED] * 2, [e.text for e in ended]
    assert "trials that need 2 or 4 devices are left to other dispatchers" in ended[1].out
    assert set(widths_of(ended[1])) <= {1}
    check_all_are_done(shared, 30)


def test_a_study_that_nobody_can_run_says_so_and_goes_on_elsewhere(shared: StudyFolder) -> None:
    a_study(shared, 16, QUICK)
    narrow = on(shared, 1).wait()
    assert narrow.code == EXIT_STUDY_FAILED, narrow.text
    assert "no dispatcher of the study has so many: this one has 1" in narrow.out
    assert set(widths_of(narrow)) == {1}
    states = [trial.state.name for trial in trials_of(shared)]
    assert set(states) == {"COMPLETE", "WAITING"}
    half = on(shared, 2).wait()
    assert half.code == EXIT_STUDY_FAILED
    assert "need 4 devices or more" in half.out or "needs 4 devices" in half.out
    wide = on(shared, 4).wait()
    assert wide.code == EXIT_BUDGET_REACHED, wide.text
    check_all_are_done(shared, 16)


def test_trials_claimed_by_one_that_has_fewer_devices_now_are_run_by_another(
    shared: StudyFolder,
) -> None:
    a_study(shared, 20, GATED)
    first = on(shared, 4)
    wait_until(lambda: bool({"begun-1", "begun-2", "begun-4"} & shared.files()), "it works")
    # Some trials wait for devices there, claimed.
    done = shared.tuner("set", "small", "devices=cpu:1")
    assert done.code == 0, done.text
    second = on(shared, 4)
    for width in (1, 2, 4):
        shared.write(f"go-{width}", "")
    ended = [each.wait() for each in (first, second)]
    assert [each.code for each in ended] == [EXIT_BUDGET_REACHED] * 2, [e.text for e in ended]
    assert "left to a dispatcher that has enough" in ended[0].out
    check_all_are_done(shared, 20)


PAUSES = """
import optuna

def train(trial):
    state = trial.load_checkpoint()
    first = 1 if state is None else state["step"] + 1
    for step in range(first, 10):
        trial.save_checkpoint({"step": step}, step)
        trial.report(trial.params["x"] + 1 / step, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return trial.params["x"]
"""


# By day: dispatchers share what is paused in test_pausing.py, and take what fits above.
@pytest.mark.nightly
def test_paused_winners_of_any_width_are_resumed_where_they_fit(shared: StudyFolder) -> None:
    shared.write("forecast.py", PAUSES)
    a_study(
        shared,
        24,
        [],
        trial={
            "function": "forecast:train",
            "resources": {"cpus": "{w}"},
            "parallel": "single_process",
        },
        pruner={"name": "asha", "min_resource": 1, "reduction_factor": 3},
    )
    fleet = [on(shared, n_devices) for n_devices in (4, 1, 1)]
    ended = [each.wait() for each in fleet]
    assert [each.code for each in ended] == [EXIT_BUDGET_REACHED] * 3, [e.text for e in ended]
    assert set(widths_of(ended[1])) | set(widths_of(ended[2])) <= {1}
    trials = trials_of(shared)
    assert len(trials) == 24
    assert {trial.state.name for trial in trials} == {"COMPLETE", "PRUNED"}


def test_a_machine_that_no_trial_fits_on_is_refused(shared: StudyFolder) -> None:
    a_study(
        shared,
        4,
        QUICK,
        search_space={"w": {"type": "categorical", "choices": [2, 4]}},
    )
    ended = on(shared, 1).wait()
    assert ended.code == 2
    assert (
        "trial.resources.cpus is '{w}', which can be 4, but this study has 1 CPU slot" in ended.err
    )


def test_a_study_of_one_machine_alone_is_refused_as_before(study_folder: StudyFolder) -> None:
    a_study(study_folder, 4, QUICK, storage="sqlite:///small.db")
    ended = on(study_folder, 2).wait()
    assert ended.code == 2
    assert "which can be 4, but this study has 2 CPU slots" in ended.err
