"""`tuner.tune` with functions, objects and spaces of each form, from scripts."""

from __future__ import annotations

import json
import signal

import optuna
import pytest

from tests.e2e.interruptions.test_interrupt import PATIENT
from tests.e2e.programs.scripts import script, start_script
from tests.e2e.study_folder import StudyFolder, wait_until

pytestmark = pytest.mark.programs

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
            "text, lists and mappings, or a distribution of Optuna: FloatDistribution(1e-4, 0.1, "
            "log=True).",
        ),
        (
            "train, {'x': (1e-5, 0.1)}",
            "tuner.tune(): space.x is (1e-05, 0.1), which may be a range or two choices. Write "
            '{"type": "float", "low": 1e-05, "high": 0.1}, or [1e-05, 0.1] for the choices.',
        ),
        ("train, {'x': 1}, n_trials=9", "tuner.tune(): n_trials is no argument. Write trials=64"),
        (
            "train, {'x': 1}, direction='maximize'",
            'tuner.tune(): direction is no argument. Write objectives={"accuracy": "maximize"}',
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
