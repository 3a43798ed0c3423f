"""`tuner.run` and `tuner.tune` from scripts: results, mistakes, Ctrl-C, two studies at once."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import optuna
import psutil
import pytest

from tests.e2e.interruptions.test_interrupt import PATIENT
from tests.e2e.study_folder import REPOSITORY, Ended, Running, StudyFolder, wait_until

#: A script imports torch and starts processes several times, on a machine that may be busy.
_TIMEOUT_S = 110.0
#: What a script of these tests ends with: whatever it has put into `told`, as JSON.
_TELL = "\nimport json, pathlib\npathlib.Path('told.json').write_text(json.dumps(told))\n"


def script(folder: StudyFolder, text: str) -> tuple[Ended, dict[str, object]]:
    """Runs a script to its end; what it has put into `told`."""
    ended = start_script(folder, text).wait(_TIMEOUT_S)
    told = folder.path / "told.json"
    return ended, json.loads(told.read_text()) if told.exists() else {}


def start_script(folder: StudyFolder, text: str) -> Running:
    folder.write("script.py", f"import tuner\ntold = {{}}\n{text}{_TELL}")
    return folder.start_python("script.py")


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


def patient(folder: StudyFolder, text: str) -> Running:
    """Starts a script whose study has trials that wait for the file `go`; two are at work."""
    folder.write("forecast.py", PATIENT)
    folder.study(pruner={"name": "none"})
    running = start_script(folder, text)
    wait_until(
        lambda: {"begun-0-1", "begun-1-1"} <= folder.files() or running.process.poll() is not None,
        "two trials are at work",
    )
    assert running.process.poll() is None, running.wait()
    return running


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


TUNED = """
import optuna
import torch

SCALE = 2.0

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

def train(trial):
    assert float(Net().weight) == 1.0
    return SCALE * (trial.params["x"] - 0.3) ** 2

def tune(trials):
    return tuner.tune(
        train,
        {"x": optuna.distributions.FloatDistribution(0, 1), "way": ["a", "b"]},
        {"loss": "minimize"},
        trials=trials,
        name="small",
        devices="cpu:2",
        sampler={"name": "random", "seed": 1},
    )
"""


def test_function_of_a_script_without_a_guard_is_tuned(study_folder: StudyFolder) -> None:
    text = f"""{TUNED}
study = tune(3)
study = tune(5)
told["states"] = list(study.trials["state"])
told["best"] = [study.best.trial_number, study.best.value]
"""
    ended, told = script(study_folder, text)
    assert (ended.code, ended.err) == (0, "")
    assert "Note:" not in ended.out, "the same function again is the same program"
    assert told["states"] == ["completed"] * 5
    printed = study_folder.best("sqlite:///small.db", "--format", "json")
    (best,) = json.loads(printed.out)
    assert told["best"] == [best["trial_number"], best["values"]["loss"]]
    assert set(best["params"]) == {"x", "way"}
    (source,) = study_folder.path.glob("tuner-files/small/functions/*.txt")
    assert "return SCALE *" in source.read_text()
    pickles = list(study_folder.path.glob("tuner-files/small/functions/*/*.pkl"))
    assert len(pickles) == 1, "the second call has removed the first one's"
    assert pickles[0].stat().st_mode & 0o777 == 0o600


FUNCTIONS = """
import functools

class Scaled:
    def __init__(self, scale):
        self.scale = scale
    def __call__(self, trial):
        return self.scale * trial.suggest_float("y", 1, 2)

def scaled(scale):
    return lambda trial: scale * trial.suggest_float("y", 1, 2)

def with_scale(trial, scale):
    return scale * trial.suggest_float("y", 1, 2)
"""


@pytest.mark.parametrize(
    "function", ["scaled(5)", "Scaled(5)", "functools.partial(with_scale, scale=5)"]
)
def test_closure_object_and_partial_below_a_guard_are_tuned(
    study_folder: StudyFolder, function: str
) -> None:
    text = f"""{FUNCTIONS}
if __name__ == "__main__":
    study = tuner.tune({function}, name="small", trials=2, devices="cpu:2", progress=False)
    told["best"] = study.best.value
"""
    ended, told = script(study_folder, text)
    assert (ended.code, ended.text) == (0, "")
    assert 5 <= float(str(told["best"])) <= 10


def test_function_of_a_module_goes_by_its_name(study_folder: StudyFolder) -> None:
    text = """
import forecast
space = {"x": {"type": "float", "low": 0, "high": 1}}
study = tuner.tune(forecast.train, space, name="small", trials=2, devices="cpu:2")
told["n"] = len(study.trials)
"""
    ended, told = script(study_folder, text)
    assert (ended.code, told) == (0, {"n": 2}), ended.text
    assert not (study_folder.path / "tuner-files/small/functions").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "train, {'x': {'type': 'float', 'low': 3, 'high': 1}}",
            "tuner.tune(): space.x.low is 3.0, but must be below high, which is 1.0. Swap the two.",
        ),
        ("train, {'x': 1}, trials=0", "tuner.tune(): trials is 0, but must be at least 1."),
        (
            "train, {'x': 1}, prunr='asha'",
            "tuner.tune(): unknown key 'prunr'. Did you mean 'pruner'?",
        ),
        (
            "train, {'x': object}",
            "tuner.tune(): space.x is <class 'object'>, which a study can't hold. Use numbers, "
            "text, lists and mappings.",
        ),
        (
            "lambda lr, width: 0, {'x': 1}, name='a'",
            "tuner.tune(): train is <lambda>(lr, width), but must be callable with one argument, "
            "the trial. Take the parameters from it: trial.params['lr'].",
        ),
        (
            "lambda trial: LOCK, name='a'",
            "tuner.tune(): train can't be handed to other processes: TypeError: cannot pickle "
            "'_thread.lock' object. Create what it uses (connections, locks, open files) inside "
            "of the function, or put the function into a module and import it.",
        ),
        (
            "lambda trial: 0",
            "tuner.tune(): name is missing. Name the study: tuner.tune(..., name='digits').",
        ),
        (
            "train, trials=3, budget={'trials': 4}",
            "tuner.tune(): trials is 3, but budget has trials as well. Give one of them.",
        ),
        (
            "3, name='a'",
            "tuner.tune(): train is 3, but must be a function, or text such as 'module:function'.",
        ),
    ],
)
def test_wrong_arguments_are_named(study_folder: StudyFolder, arguments: str, message: str) -> None:
    text = f"""
import threading
import tuner.errors
LOCK = threading.Lock()
def train(trial):
    return 0.0
try:
    tuner.tune({arguments})
except tuner.errors.ConfigError as error:
    told["message"] = str(error)
"""
    ended, told = script(study_folder, text)
    assert ended.code == 0, ended.text
    assert str(told["message"]).startswith(message)
    assert study_folder.files() == {"forecast.py", "script.py", "told.json"}, "nothing is written"


def test_another_space_is_refused_in_words_of_a_call(study_folder: StudyFolder) -> None:
    text = """
import tuner.errors
def train(trial):
    return 0.0
tuner.tune(train, {"x": [1, 2]}, trials=1, devices="cpu:1")
try:
    tuner.tune(train, {"z": [1, 2]}, trials=2, devices="cpu:1")
except tuner.errors.StudyMismatch as error:
    told["message"] = str(error)
"""
    ended, told = script(study_folder, text)
    assert ended.code == 0, ended.text
    assert "  - z is new\n  - x is gone\n" in str(told["message"])
    assert str(told["message"]).endswith("or start a new one with name='NEW_NAME'.")


def test_call_that_was_interrupted_goes_on(study_folder: StudyFolder) -> None:
    text = f"""{PATIENT}
tuner.tune(train, {{"x": [0, 1]}}, name="small", trials=3, devices="cpu:2", pruner="none")
"""
    running = start_script(study_folder, text)
    wait_until(
        lambda: (
            {"begun-0-1", "begun-1-1"} <= study_folder.files() or running.process.poll() is not None
        ),
        "two trials are at work",
    )
    running.signal(signal.SIGINT)
    ended = running.wait()
    assert "StudyInterrupted" in ended.err
    assert study_folder.states() == ["WAITING", "WAITING"]

    study_folder.write("go", "")
    again, _ = script(study_folder, text)
    assert again.code == 0, again.text
    assert study_folder.states() == ["COMPLETE"] * 3


#: The same space in the words of study.yaml, as Optuna's distributions, and in short forms.
SPACES = """{
    "words": {
        "lr": {"type": "float", "low": 1e-4, "high": 0.1, "log": True},
        "depth": {"type": "int", "low": 2, "high": 8},
        "way": {"type": "categorical", "choices": ["a", "b"]},
    },
    "distributions": {
        "lr": optuna.distributions.FloatDistribution(1e-4, 0.1, log=True),
        "depth": optuna.distributions.IntDistribution(2, 8),
        "way": optuna.distributions.CategoricalDistribution(["a", "b"]),
    },
    "shorthands": {
        "lr": {"distribution": "log_uniform_values", "min": 1e-4, "max": 0.1},
        "depth": {"min": 2, "max": 8},
        "way": ["a", "b"],
    },
}"""


@pytest.mark.parametrize("form", ["words", "distributions", "shorthands"])
def test_space_takes_each_form(study_folder: StudyFolder, form: str) -> None:
    text = f"""
import optuna

def train(trial):
    return trial.params.lr * trial.params.depth

space = {SPACES}[{form!r}]
tuner.tune(train, space, name="small", trials=2, devices="cpu:2", progress=False)
"""
    ended, _ = script(study_folder, text)
    assert (ended.code, ended.text) == (0, "")
    rows = study_folder.rows("select distinct param_name, distribution_json from trial_params")
    found = {name: optuna.distributions.json_to_distribution(text) for name, text in rows}
    assert found == {
        "lr": optuna.distributions.FloatDistribution(1e-4, 0.1, log=True),
        "depth": optuna.distributions.IntDistribution(2, 8),
        "way": optuna.distributions.CategoricalDistribution(["a", "b"]),
    }
