"""Verdicts reach programs that ask seldom, print several steps at once, or end slowly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import optuna
import pytest
from optuna.trial import TrialState

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BUDGET_REACHED

N_STEPS = 20

# Reports each step and asks at every 5th; good configurations are good from the first step on.
SELDOM = """
import optuna

def train(trial):
    x = trial.suggest_float("x", 0, 1)
    for step in range(1, 31):
        trial.report(x * (1 - 0.5 ** step), step)
        if step % 5 == 0 and trial.should_prune():
            raise optuna.TrialPruned
    return x
"""

SAVED = """
import os, zipfile

def load(folder):
    path = os.path.join(folder, "step-0.pt")
    if not os.path.exists(path):
        return 0
    with zipfile.ZipFile(path) as file:
        return int(file.read("step"))

def save(folder, step):
    os.makedirs(folder, exist_ok=True)
    new = os.path.join(folder, "new")
    with zipfile.ZipFile(new, "w") as file:
        file.writestr("step", str(step))
    os.replace(new, os.path.join(folder, "step-0.pt"))
"""

# What is written comes in blocks of some steps, as with C's standard output on a pipe.
PRINTS = """
import json, sys, time
from saved import load, save

x, folder, block, n_steps, pause_s = float(sys.argv[1]), sys.argv[2], *map(float, sys.argv[3:])
done = load(folder)
lines = []
while done < n_steps:
    done += 1
    lines.append(json.dumps({"step": done, "value": x * done}) + "\\n")
    if len(lines) == block:
        save(folder, done)
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
        lines = []
        time.sleep(pause_s)
"""

LOGS_SELDOM = """
import json, sys, time
from saved import load, save

x, folder, n_steps = float(sys.argv[1]), sys.argv[2], int(sys.argv[3])
done = load(folder)
for step in range(done + 1, n_steps + 1):
    if step % 10 == 0:
        save(folder, step)
        print(json.dumps({"step": step, "value": x * step}), flush=True)
        time.sleep(0.5)
"""

# Takes SIGTERM as many trainers do: finish the step, save, report, leave.
HANDLES_SIGTERM = """
import json, signal, sys, time
from saved import load, save

x, folder, code = float(sys.argv[1]), sys.argv[2], int(sys.argv[3])
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
done = load(folder)
while done < 20:
    done += 1
    time.sleep(0.05)
    save(folder, done)
    print(json.dumps({"step": done, "value": x * done}), flush=True)
    if asked:
        sys.exit(code)
    if done in (1, 3, 9):
        time.sleep(0.5)
"""


def asha(mode: str) -> dict[str, object]:
    return {"name": "asha", "min_resource": 1, "reduction_factor": 3, "mode": mode}


def run(folder: StudyFolder, **keys: object) -> optuna.Study:
    folder.study(
        objectives={"value": "maximize"},
        sampler={"name": "random", "seed": 4},
        storage="sqlite:///small.db",
        **keys,
    )
    ended = folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    return optuna.load_study(study_name=None, storage=f"sqlite:///{folder.path / 'small.db'}")


def run_command(
    folder: StudyFolder, code: str, *words: str, mode: str, n_trials: int = 9
) -> optuna.Study:
    folder.write("saved.py", SAVED)
    folder.write("prints.py", code)
    command = ["python", "prints.py", "{x}", "{checkpoint_dir}", *words]
    return run(
        folder,
        trial={"command": command},
        pruner=asha(mode),
        devices="cpu:2",
        budget={"trials": n_trials},
    )


def check_ends(folder: StudyFolder, study: optuna.Study, mode: str, n_steps: int = N_STEPS) -> None:
    """Weak trials ended early, in one way, and nobody completed before its end."""
    states = Counter(trial.state for trial in study.trials)
    assert set(states) == {TrialState.COMPLETE, TrialState.PRUNED}
    assert states[TrialState.PRUNED] >= states[TrialState.COMPLETE]
    for trial in study.get_trials(states=(TrialState.COMPLETE,)):
        assert trial.last_step == n_steps
        assert trial.value == trial.params["x"] * n_steps
    outcomes = {each.outcome for each in folder.attempts()}
    assert outcomes == {"completed", "paused" if mode == "promote" else "pruned"}


def stopped_by_optuna(pruner: optuna.pruners.BasePruner, n_trials: int) -> int:
    names: dict[str, object] = {}
    exec(SELDOM, names)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.RandomSampler(seed=4), pruner=pruner
    )
    study.optimize(names["train"], n_trials=n_trials)  # type: ignore[arg-type]
    return len(study.get_trials(states=(TrialState.PRUNED,)))


@pytest.mark.parametrize(
    ("pruner", "optunas"),
    [
        ({"name": "median"}, optuna.pruners.MedianPruner()),
        ({"name": "successive_halving"}, optuna.pruners.SuccessiveHalvingPruner()),
        (asha("stop"), optuna.pruners.SuccessiveHalvingPruner(1, 3)),
    ],
    ids=["median", "successive_halving", "asha"],
)
def test_who_asks_at_every_fifth_step_is_pruned_as_by_optuna(
    study_folder: StudyFolder, pruner: Mapping[str, object], optunas: optuna.pruners.BasePruner
) -> None:
    study_folder.write("forecast.py", SELDOM)
    study = run(
        study_folder, pruner=dict(pruner), devices="cpu:1", budget={"trials": 40}, search_space=None
    )
    pruned = study.get_trials(states=(TrialState.PRUNED,))
    theirs = stopped_by_optuna(optunas, 40)
    assert theirs > 0
    assert theirs / 2 <= len(pruned) <= 2 * theirs
    assert all(trial.last_step % 5 == 0 for trial in pruned)


@pytest.mark.parametrize("mode", ["stop", "promote"])
@pytest.mark.parametrize("block", ["2", "5"])
def test_command_that_prints_several_steps_at_once(
    study_folder: StudyFolder, mode: str, block: str
) -> None:
    study = run_command(study_folder, PRINTS, block, str(N_STEPS), "0.4", mode=mode)
    check_ends(study_folder, study, mode)


@pytest.mark.parametrize(
    ("mode", "n_steps"), [("stop", N_STEPS), ("promote", N_STEPS), ("promote", 30)]
)
def test_command_that_logs_every_tenth_step(
    study_folder: StudyFolder, mode: str, n_steps: int
) -> None:
    """With 30 steps the last report is the first one beyond a rung."""
    study = run_command(study_folder, LOGS_SELDOM, str(n_steps), mode=mode)
    check_ends(study_folder, study, mode, n_steps)


@pytest.mark.parametrize("mode", ["stop", "promote"])
@pytest.mark.parametrize("code", ["0", "143"])
def test_command_that_reports_once_more_after_sigterm(
    study_folder: StudyFolder, mode: str, code: str
) -> None:
    study = run_command(study_folder, HANDLES_SIGTERM, code, mode=mode)
    check_ends(study_folder, study, mode)


@pytest.mark.parametrize("last_line", ["", "; exit 0"])
def test_command_behind_a_shell(study_folder: StudyFolder, last_line: str) -> None:
    """The shell gets SIGTERM as well, and ends with its own code."""
    study_folder.write("saved.py", SAVED)
    study_folder.write("prints.py", HANDLES_SIGTERM)
    line = f'python prints.py "$@" 0{last_line}'
    study = run(
        study_folder,
        trial={"command": ["sh", "-c", line, "sh", "{x}", "{checkpoint_dir}"]},
        pruner=asha("stop"),
        devices="cpu:2",
        budget={"trials": 9},
    )
    check_ends(study_folder, study, "stop")


# Speaks for itself, asks seldom, and leaves its loop in peace when it is told to end.
SCRIPT = """
import tuner

trial = tuner.current()
for step in range(1, 21):
    trial.report(trial.params["x"] * step, step)
    if step % 5 == 0 and trial.should_prune():
        break
"""

RETURNS_NONE = """
def train(trial):
    for step in range(1, 21):
        trial.report(trial.params["x"] * step, step)
        if step % 5 == 0 and trial.should_prune():
            return
"""


@pytest.mark.parametrize("program", ["script", "function"])
def test_who_leaves_its_loop_when_told_has_not_completed(
    study_folder: StudyFolder, program: str
) -> None:
    study_folder.write("script.py", SCRIPT)
    study_folder.write("forecast.py", RETURNS_NONE)
    command = {"command": ["python", "script.py"]}
    study = run(
        study_folder,
        trial=command if program == "script" else {"function": "forecast:train"},
        pruner=asha("stop"),
        devices="cpu:2",
        budget={"trials": 9},
    )
    check_ends(study_folder, study, "stop")
