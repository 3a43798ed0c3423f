"""The programs of the framework pages, with the real frameworks: paused, killed and resumed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import optuna
import pytest
from _pytest.mark.structures import ParameterSet

from tests.e2e.study_folder import REPOSITORY, AttemptRecord, StudyFolder

pytestmark = [pytest.mark.programs, pytest.mark.slow, pytest.mark.timeout(300)]

#: On a machine that many share: each framework takes seconds to import.
PATIENCE_S = 240.0
_NAMED = re.compile(r"```\w+\n(# (\w+\.\w+)\n.*?)```", re.DOTALL)

#: The page's program, whose steps are written down. The first attempt that resumes is killed after
#: its first report, before it can save.
WRAPPER = """
import os, signal, train

def main(trial):
    report = trial.report

    def write_down(value, step, **metrics):
        report(value, step, **metrics)
        if not trial.is_main:
            return
        with open("steps.txt", "a") as file:
            file.write(f"{trial.number} {trial.attempt_number} {step}\\n")
        if trial.attempt_number > 1 and not os.path.exists("killed"):
            open("killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

    trial.report = write_down
    return train.main(trial)
"""
SCRIPT = """
import tuner, wrapper

wrapper.main(tuner.current())
"""

#: `command:` with the program of a page; its first attempt is killed after its second report.
KILLED_SCRIPT = """
import os, signal, train, tuner

trial = tuner.current()
report = trial.report

def write_down(value, step, **metrics):
    report(value, step, **metrics)
    with open("steps.txt", "a") as file:
        file.write(f"{trial.number} {trial.attempt_number} {step}\\n")
    if trial.attempt_number == 1 and step == 2:
        os.kill(os.getpid(), signal.SIGKILL)

trial.report = write_down
train.main(trial)
"""

#: Lightning ends the interrupted epoch of a resumed trial first, and asks for the metric there.
WITH_EARLY_STOPPING = (
    'callbacks=[L.pytorch.callbacks.EarlyStopping("val_accuracy", mode="max", patience=6), '
    "TrialCallback("
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A page, and what its program does when it is paused at the first rung and killed later."""

    page: str
    #: Of each attempt of the best trial.
    first_steps: Sequence[int]
    last_step: int
    #: Reached only with the weights of the attempts before.
    lowest_value: float
    keys: Mapping[str, str] = field(default_factory=dict)
    is_script: bool = False


_TWO_RANKS = {"trial.resources": "{cpus: 2}", "trial.parallel": "ddp"}
_EACH_TEN = [1, 11, 11, 31]
CASES = {
    "lightning": Case(page="lightning.md", first_steps=[1, 2, 2, 4], last_step=6, lowest_value=0.9),
    "lightning-ddp": Case(
        page="lightning.md",
        first_steps=[1, 2, 2, 4],
        last_step=6,
        lowest_value=0.9,
        keys=_TWO_RANKS,
    ),
    "lightning-script": Case(
        page="lightning.md",
        first_steps=[1, 2, 2, 4],
        last_step=6,
        lowest_value=0.9,
        is_script=True,
        keys=_TWO_RANKS,
    ),
    "transformers": Case(
        page="transformers.md", first_steps=[1, 4, 4], last_step=6, lowest_value=0.4
    ),
    "transformers-ddp": Case(
        page="transformers.md",
        first_steps=[1, 2, 2, 4],
        last_step=6,
        # Two ranks train half as many batches in an epoch.
        lowest_value=0.25,
        keys=_TWO_RANKS,
    ),
    "accelerate": Case(
        page="accelerate.md", first_steps=[1, 2, 2, 4], last_step=6, lowest_value=0.9
    ),
    "accelerate-ddp": Case(
        page="accelerate.md",
        first_steps=[1, 2, 2, 4],
        last_step=6,
        lowest_value=0.9,
        keys=_TWO_RANKS,
    ),
    # Steps are from 0; the first rung is at step 1. An epoch is saved before it is reported.
    "keras": Case(page="keras.md", first_steps=[0, 2, 3, 4], last_step=5, lowest_value=0.8),
    "xgboost": Case(
        page="xgboost.md",
        first_steps=_EACH_TEN,
        last_step=60,
        lowest_value=0.99,
        keys={"pruner.min_resource": "10"},
    ),
    "lightgbm": Case(
        page="lightgbm.md",
        first_steps=_EACH_TEN,
        last_step=60,
        lowest_value=0.99,
        keys={"pruner.min_resource": "10"},
    ),
    "scikit-learn": Case(
        page="scikit-learn.md", first_steps=[1, 2, 2, 4], last_step=6, lowest_value=0.9
    ),
}


#: Accelerate joins the ranks of Transformers, too. What Lightning does on one device and how a
#: script is killed are tried by other cases and programs.
NIGHTLY = ("lightning", "lightning-script", "transformers-ddp", "accelerate")


def _cases() -> list[ParameterSet]:
    return [
        pytest.param(case, id=name, marks=[pytest.mark.nightly] * (name in NIGHTLY))
        for name, case in CASES.items()
    ]


@pytest.mark.parametrize("case", _cases())
def test_program_of_a_page_is_paused_killed_and_resumed(
    case: Case, study_folder: StudyFolder
) -> None:
    _write_page(case.page, study_folder)
    study_folder.write("wrapper.py", WRAPPER)
    study_folder.write("script.py", SCRIPT)
    keys = {
        "trial.function": "wrapper:main",
        "trial.retries": "1",
        "devices": "cpu:2" if "trial.resources" in case.keys else "cpu:1",
        "storage": "sqlite:///small.db",
        "pruner": "{name: asha, min_resource: 1, reduction_factor: 3}",
        **case.keys,
    }
    if case.is_script:
        keys["trial.function"] = "null"
        keys["trial.command"] = "[python, script.py]"
    words = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    running = study_folder.start("--trials", "3", *words)
    ended = running.wait(PATIENCE_S)
    assert ended.code == 0, ended.text

    study = optuna.load_study(
        study_name=None, storage=f"sqlite:///{study_folder.path / 'small.db'}"
    )
    assert sorted(trial.state.name for trial in study.trials) == ["COMPLETE", "PRUNED", "PRUNED"]
    best = study.best_trial
    steps = _steps_by_attempt(study_folder, best.number)
    assert [each[0] for each in steps] == list(case.first_steps), steps
    assert all(each == list(range(each[0], each[-1] + 1)) for each in steps), steps
    assert steps[-1][-1] == case.last_step
    assert best.value is not None
    assert best.value >= case.lowest_value
    assert sorted(best.intermediate_values) == list(range(case.first_steps[0], case.last_step + 1))
    outcomes = _outcomes(study_folder.attempts(), best.number)
    assert (outcomes[:2], outcomes[-1]) == (["paused", "failed"], "completed")


# By day, `asha` ends the losers of each page's program, which leaves by the same exception.
@pytest.mark.nightly
@pytest.mark.parametrize("page", sorted({case.page for case in CASES.values()}))
def test_program_of_a_page_is_pruned(page: str, study_folder: StudyFolder) -> None:
    _write_page(page, study_folder)
    hopeless = "{name: threshold, lower: 2.0}"
    words = ["--set", f"pruner={hopeless}", "--set", "devices=cpu:1"]
    words += ["--set", "storage=sqlite:///small.db"]
    study_folder.start("--trials", "1", *words).wait(PATIENCE_S)
    (attempt,) = study_folder.attempts()
    assert (attempt.outcome, attempt.cause) == ("pruned", "pruner"), attempt.detail


#: By day, the same pages as functions; `test_killed_and_started_again` kills scripts.
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("page", "edits"),
    [
        ("transformers.md", {"epochs=6": "epochs=3"}),
        (
            "lightning.md",
            {"epochs=6": "epochs=3", "callbacks=[TrialCallback(": WITH_EARLY_STOPPING},
        ),
    ],
)
def test_script_of_a_page_is_killed_and_resumed(
    page: str, edits: Mapping[str, str], study_folder: StudyFolder
) -> None:
    _write_page(page, study_folder)
    program = (study_folder.path / "train.py").read_text()
    for old, new in edits.items():
        assert program.count(old) == 1
        program = program.replace(old, new)
    study_folder.write("train.py", program)
    study_folder.write("script.py", KILLED_SCRIPT)
    keys = {
        "trial": "{command: [python, script.py], retries: 1}",
        "devices": "cpu:1",
        "storage": "sqlite:///small.db",
        "pruner": "none",
    }
    words = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    ended = study_folder.start("--trials", "1", *words).wait(PATIENCE_S)
    assert ended.code == 0, ended.text
    assert _outcomes(study_folder.attempts(), 0) == ["failed", "completed"]
    # The second epoch is saved after its report, and so repeated.
    assert _steps_by_attempt(study_folder, 0) == [[1, 2], [2, 3]]


def _write_page(page: str, folder: StudyFolder) -> None:
    for text, name in _NAMED.findall((REPOSITORY / "docs" / page).read_text()):
        folder.write(name, text)


def _steps_by_attempt(folder: StudyFolder, trial: int) -> list[list[int]]:
    lines = (folder.path / "steps.txt").read_text().splitlines()
    rows = [tuple(map(int, line.split())) for line in lines]
    own = [(attempt, step) for number, attempt, step in rows if number == trial]
    return [[step for _, step in rows] for _, rows in groupby(own, key=lambda row: row[0])]


def _outcomes(attempts: Sequence[AttemptRecord], trial: int) -> list[str | None]:
    return [each.outcome for each in attempts if each.trial == trial]
