"""`tuner.run` and `tuner.tune` from scripts: results, mistakes, Ctrl-C, two studies at once."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.e2e.interruptions.test_interrupt import PATIENT
from tests.e2e.programs.scripts import patient, script
from tests.e2e.study_folder import REPOSITORY, StudyFolder

pytestmark = pytest.mark.programs


def test_run_gives_what_the_command_line_gives(study_folder: StudyFolder) -> None:
    study_folder.study(trial={"function": "forecast:train"})
    text = """
study = tuner.run("study.yaml", trials=5, overrides={"sampler.seed": 3})
told["best"] = [study.best.trial_number, study.best.value, dict(study.best.params)]
told["columns"] = list(study.trials.columns)
told["numbers"] = [int(each) for each in study.trials["number"]]
told["figures"] = {title: type(figure).__name__ for title, figure in study.figures.items()}
told["is_running"] = study.is_running
"""
    ended, told = script(study_folder, text)
    assert (ended.code, ended.err) == (0, "")
    assert "budget reached: 5 trials: 5 completed, 0 pruned, 0 failed\n" in ended.out

    printed = json.loads(study_folder.best("--format", "json").out)[0]
    value = printed["values"]["value"]
    assert told["best"] == [printed["trial_number"], value, printed["params"]]
    assert told["numbers"] == [0, 1, 2, 3, 4]
    csv = study_folder.tuner("trials", "study.yaml", "--csv").out
    assert told["columns"] == csv.splitlines()[0].split(",")
    figures = told["figures"]
    assert isinstance(figures, dict)
    assert set(figures.values()) == {"Figure"}
    assert "Convergence of value against trials" in figures
    assert told["is_running"] is False

    again = study_folder.tune("--trials", "5", "--set", "sampler.seed=3")
    assert "5 completed" in again.out, "the command line sees the same study"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            "tuner.run('absent.yaml')",
            "ConfigError",
            "absent.yaml: there is no such file. Give the path of a study file, or write one: "
            "tuner init",
        ),
        (
            "tuner.run(trials=0)",
            "ConfigError",
            "--trials: budget.trials is 0, but must be at least 1.",
        ),
        (
            "tuner.run(overrides={'trial.function': 'forecast:trian'})",
            "ConfigError",
            "study.yaml: trial.function is 'forecast:trian', but forecast has no function "
            "'trian'. It has: train. Did you mean 'train'?",
        ),
        (
            "tuner.run(overrides={'sampler.seed': object})",
            "ConfigError",
            "tuner.run(overrides): sampler.seed is <class 'object'>, which a study file cannot "
            "hold.",
        ),
    ],
)
def test_mistakes_are_exceptions_with_the_message_of_the_command_line(
    study_folder: StudyFolder, call: str, error: str, message: str
) -> None:
    study_folder.study()
    text = f"""
try:
    {call}
except tuner.errors.TunerError as error:
    told["error"], told["message"] = type(error).__name__, str(error)
"""
    ended, told = script(study_folder, "import tuner.errors\n" + text)
    assert ended.code == 0, ended.text
    assert told == {"error": error, "message": message}


def test_study_without_a_result_is_an_exception(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", "def train(trial):\n    raise ValueError('no data')\n")
    study_folder.study()
    ended, _ = script(study_folder, "tuner.run('study.yaml', progress=False)\n")
    assert ended.code == 1
    assert "tuner.errors.StudyFailed" in ended.err
    assert "0 completed" in ended.err


def test_interrupt_loses_nothing_and_the_same_call_goes_on(study_folder: StudyFolder) -> None:
    text = "tuner.run('study.yaml')\n"
    running = patient(study_folder, text)
    running.signal(signal.SIGINT)
    ended = running.wait()
    assert "StudyInterrupted: Study 'small' is stopped and everything is saved." in ended.err
    assert "Stopped; everything is saved. The same call continues the study.\n" in ended.out
    assert study_folder.states() == ["WAITING", "WAITING"]
    assert {each.outcome for each in study_folder.attempts()} == {"cancelled"}

    study_folder.write("go", "")
    again, _ = script(study_folder, text)
    assert again.code == 0, again.text
    assert study_folder.states() == ["COMPLETE"] * 4


def test_study_ends_with_the_process_that_started_it(study_folder: StudyFolder) -> None:
    running = patient(study_folder, "tuner.run('study.yaml')\n")
    below = psutil.Process(running.process.pid).children(recursive=True)
    running.signal(signal.SIGKILL)
    running.wait()
    _, alive = psutil.wait_procs(below, timeout=60)
    assert alive == []
    assert study_folder.states() == ["WAITING", "WAITING"]
    assert {each.outcome for each in study_folder.attempts()} == {"cancelled"}


def test_study_in_the_background_is_stopped(study_folder: StudyFolder) -> None:
    text = """
import time
from pathlib import Path
study = tuner.run("study.yaml", wait=False)
told["was_running"] = study.is_running
told["in_time"] = study.wait(0.1)
while not {"begun-0-1", "begun-1-1"} <= {path.name for path in Path().iterdir()}:
    time.sleep(0.05)
study.stop()
told["is_running"] = study.is_running
told["states"] = list(study.trials["state"])
study.wait()
"""
    study_folder.write("forecast.py", PATIENT)
    study_folder.study(pruner={"name": "none"})
    ended, told = script(study_folder, text)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == (
        "Study 'small' runs in the background until its end or the end of this process. "
        "Progress: study.trials and study.best. Stop: study.stop().\n"
    )
    assert told == {
        "was_running": True,
        "in_time": False,
        "is_running": False,
        "states": ["waiting", "waiting"],
    }


def test_dispatcher_that_is_killed_is_an_exception(study_folder: StudyFolder) -> None:
    running = patient(study_folder, "tuner.run('study.yaml')\n")
    (child,) = [
        each
        for each in psutil.Process(running.process.pid).children()
        if "tuner.api.dispatch_process" in " ".join(each.cmdline())
    ]
    child.kill()
    ended = running.wait()
    assert ended.code == 1
    assert "StudyFailed: The process that ran the study ended by signal 9." in ended.err


def test_two_studies_one_after_the_other_and_at_once(study_folder: StudyFolder) -> None:
    study_folder.study()
    text = """
first = tuner.run("study.yaml", study="first", trials=3)
others = [tuner.run("study.yaml", study=name, trials=3, wait=False) for name in ("a", "b")]
for study in others:
    study.wait()
for study in (first, *others):
    told[study.name] = len(study.trials)
"""
    ended, told = script(study_folder, text)
    assert ended.code == 0, ended.text
    assert told == {"first": 3, "a": 3, "b": 3}


def test_trials_are_dictionaries_without_pandas(study_folder: StudyFolder) -> None:
    study_folder.study()
    text = """
import sys
sys.modules["pandas"] = None
study = tuner.run("study.yaml", trials=2, progress=False)
told["type"] = type(study.trials).__name__
told["trials"] = [[each["number"], each["state"], "params_x" in each] for each in study.trials]
"""
    ended, told = script(study_folder, text)
    assert (ended.code, ended.text) == (0, "")
    rows = [[number, "completed", True] for number in range(2)]
    assert told == {"type": "list", "trials": rows}


def test_module_of_the_function_that_starts_a_study_is_told(study_folder: StudyFolder) -> None:
    module = "import tuner\ndef train(trial):\n    return 0.0\ntuner.run('study.yaml')\n"
    study_folder.write("forecast.py", module)
    study_folder.study()
    ended, _ = script(study_folder, "tuner.run('study.yaml')\n")
    assert ended.code == 1
    assert 'Put the call below `if __name__ == "__main__":`.' in ended.err


def test_module_of_the_command_can_be_called_as_well(study_folder: StudyFolder) -> None:
    study_folder.study()
    text = "import tuner.run\ntold['n'] = len(tuner.run('study.yaml', trials=2).trials)\n"
    ended, told = script(study_folder, text)
    assert (ended.code, told) == (0, {"n": 2}), ended.text


def test_code_of_the_page_runs_as_it_stands(study_folder: StudyFolder) -> None:
    page = (REPOSITORY / "docs/python-api.md").read_text()
    study_folder.study()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) > 2
    ended, _ = script(study_folder, "\n".join(blocks))
    assert ended.code == 0, ended.text
    assert "budget reached: 12 trials: " in ended.out


def test_import_of_the_package_is_cheap(study_folder: StudyFolder) -> None:
    text = """
import sys
told["loaded"] = [n for n in ("optuna", "sqlalchemy", "torch", "pydantic") if n in sys.modules]
told["path"] = tuner.__file__
"""
    ended, told = script(study_folder, text)
    assert ended.code == 0, ended.text
    assert told["loaded"] == []
    assert Path(str(told["path"])).name == "__init__.py"
