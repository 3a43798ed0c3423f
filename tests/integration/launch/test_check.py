"""What users are told about a program that cannot be used, and that its output is kept apart."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tuner.errors import LaunchError
from tuner.launch.inbox import Inbox
from tuner.launch.local_host.launcher import LocalLauncher, modules_of
from tuner.launch.request import CommandProgram, FunctionProgram, Program

Check = Callable[..., None]


@pytest.fixture
def check(tmp_path: Path) -> Iterator[Check]:
    inbox = Inbox()
    launchers = []

    def check(source: str, program: Program) -> None:
        (tmp_path / "user_module.py").write_text(source)
        launchers.append(
            LocalLauncher(
                inbox,
                modules=[name for name in modules_of(program) if name != "torch"],
                environment={},
                log_path=tmp_path / "imports.log",
                import_path=[str(tmp_path)],
            )
        )
        launchers[-1].check(program)

    yield check
    for launcher in launchers:
        launcher.close()
    inbox.close()


def function(name: str = "train", module: str = "user_module") -> FunctionProgram:
    return FunctionProgram(module=module, function=name)


IMPORTS_FAIL = {
    "syntax": ("def train(trial:\n", "SyntaxError"),
    "missing module": ("import no_such_module_of_mine\n", "ModuleNotFoundError"),
    "exception": ("raise RuntimeError('no licence')\n", "RuntimeError: no licence"),
    "exit": ("import sys; sys.exit('bye')\n", "SystemExit: bye"),
}


@pytest.mark.parametrize("case", IMPORTS_FAIL)
def test_module_that_cannot_be_imported_is_shown_with_its_error(check: Check, case: str):
    source, words = IMPORTS_FAIL[case]
    with pytest.raises(LaunchError) as caught:
        check(source, function())
    text = str(caught.value)
    assert text.startswith("trial.function is 'user_module:train', but importing 'user_module'")
    assert words in text


def test_fork_server_of_somebody_else_is_not_taken(check: Check):
    other = multiprocessing.get_context("forkserver").Process(target=os.getpid)
    other.start()
    other.join()
    check("def train(trial): ...\n", function())


def test_module_that_is_not_there(check: Check):
    with pytest.raises(LaunchError, match="there is no module 'elsewhere' in"):
        check("", function(module="elsewhere"))


FUNCTIONS = {
    "absent": ("def other(trial): ...\ndef _own(): ...", "has no function 'train'. It has: other."),
    "no function": ("train = 5", "which is 5, but must be a function. Write def train"),
    "nothing": ("x = 5", "has no function 'train'. It has: none. Write def train(trial):"),
    "class": ("class train: ...", "which is a class, but must be a function that takes"),
    "class that is called": (
        "class train:\n    def __call__(self, trial): ...",
        "Name an instance: write objective = train() below the class.",
    ),
    "coroutine": ("async def train(trial): ...", "which is a coroutine (async def), but"),
    "generator": ("def train(trial): yield 1", "which is a generator (it has a yield), but"),
    "no arguments": ("def train(): ...", "whose signature is train(). It must be callable with"),
    "two arguments": ("def train(lr, epochs): ...", "train(lr, epochs)"),
    "keyword only": ("def train(*, trial): ...", "train(*, trial)"),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_function_that_cannot_be_called_with_a_trial(check: Check, case: str):
    source, words = FUNCTIONS[case]
    with pytest.raises(LaunchError) as caught:
        check(source, function())
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("def train(trial, epochs=3): ...", "train"),
        ("def train(*args): ...", "train"),
        ("class Model:\n    @staticmethod\n    def train(trial): ...", "Model.train"),
        ("import functools\ntrain = functools.partial(print, 'x')", "train"),
    ],
    ids=["default", "any", "nested", "partial"],
)
def test_function_that_takes_a_trial_is_accepted(check: Check, source: str, name: str):
    check(source, function(name))


def test_space_of_a_command_is_checked_too(check: Check):
    program = CommandProgram(argv=("true",), space="user_module:space")
    with pytest.raises(LaunchError, match="search_space is 'user_module:space'"):
        check("", program)


def test_output_of_an_import_goes_to_the_log_and_not_to_the_terminal(
    check: Check, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    source = "import os\nprint('LOUD', flush=True)\nos.write(2, b'LOUDER')\ndef train(trial): ..."
    check(source, function())
    out, err = capfd.readouterr()
    assert "LOUD" not in out + err
    log = (tmp_path / "imports.log").read_text()
    assert "LOUD\n" in log
    assert "LOUDER" in log
