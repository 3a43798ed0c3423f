"""A module is judged by its text: nothing of it runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tuner.launch.function_source_check import SourceCheck, check_source
from tuner.launch.import_times import ImportTimes, long_import

RAISES = "raise SystemExit('imported')\n"


def check(folder: Path, text: str, name: str = "program:train") -> SourceCheck:
    (folder / "program.py").write_text(RAISES + text)
    return check_source("trial.function", name, [str(folder)], ["lr"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def train(trial): ...", ""),
        ("def train(trial, *, epochs=3, **more: int): ...", ""),
        ("def train(): ...", "whose signature is train(). It must be callable with one argument"),
        ("def train(trial, lr): ...", "Write def train(trial): lr = trial.params['lr']"),
        ("def train(lr): ...", "whose only argument is named after the parameter 'lr'"),
        ("async def train(trial): ...", "which is a coroutine (async def)"),
        ("def train(trial):\n  for i in range(3):\n    yield i", "which is a generator"),
        ("def train(trial):\n  def inner():\n    yield 1\n  return 1", ""),
        ("class train: ...", "which is a class"),
        ("class train:\n  def __call__(self, trial): ...", "Name an instance"),
        ("def main(trial): ...", "has no function 'train'. It has: main. Did you mean 'main'?"),
        ("def train(trial) return 1", "SyntaxError: "),
        # What only an import can tell is no mistake.
        ("from elsewhere import train", ""),
        ("from elsewhere import *", ""),
        ("import functools\ntrain = functools.partial(print)", ""),
        ("@decorated\ndef train(): ...", ""),
        ("if True:\n  def train(trial): ...", ""),
    ],
)
def test_function_is_judged_without_an_import(tmp_path: Path, text: str, problem: str) -> None:
    found = check(tmp_path, text).problem
    assert problem in found
    assert bool(problem) == bool(found)


@pytest.mark.parametrize(
    ("test", "is_named"),
    [
        ("if trial.should_prune: raise TrialPruned", True),
        ("if epoch > 3 and trial.should_prune: return 1", True),
        ("if trial.should_prune(): raise TrialPruned", False),
        ("ask = trial.should_prune", False),
    ],
)
def test_a_method_that_is_not_called_is_named(tmp_path: Path, test: str, is_named: bool) -> None:
    said = check(tmp_path, f"def train(trial):\n  {test}").remark
    assert said == is_named * (
        "program.py, line 3: trial.should_prune is a method and always true, so that no trial "
        "would complete. Write trial.should_prune()"
    )


@pytest.mark.parametrize("name", ["absent:train", "program.absent:train", "package.absent:train"])
def test_module_that_is_not_there(tmp_path: Path, name: str) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text(RAISES)
    module = name.partition(":")[0]
    assert f"there is no module '{module}' in {tmp_path}" in check(tmp_path, "", name).problem


def test_module_of_a_package(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text(RAISES)
    check(tmp_path, "def train(): ...")
    shutil.copy(tmp_path / "program.py", tmp_path / "package" / "program.py")
    assert "whose signature is train()" in check(tmp_path, "", "package.program:train").problem


def test_module_that_someone_else_wrote() -> None:
    assert check_source("trial.function", "json.tool:main", [], []).problem == (
        "trial.function is 'json.tool:main', whose signature is main(). It must be callable with "
        "one argument, the trial. Write def main(trial): ..."
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("for epoch in range(3):\n    model.fit(data)", "line 3: model.fit(data) runs when"),
        ("args = parser.parse_args()", "line 2: parser.parse_args() runs when"),
        ("print('loading')", "line 2: print('loading') runs when"),
        ("open('log.txt', 'w').write('x')", "line 2: open('log.txt', 'w') runs when"),
        ("main()", "line 2: main() runs when"),
        ("if __name__ == '__main__':\n    main()", ""),
        ("def run():\n    model.fit(data)", ""),
        ("config = open('config.json').read()", ""),
        ("torch.manual_seed(0)", ""),
    ],
)
def test_work_at_import_is_named(tmp_path: Path, text: str, line: str) -> None:
    remark = check(tmp_path, text).remark
    assert line in remark
    assert bool(line) == bool(remark)


def test_libraries_are_no_time_of_the_module_that_imports_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    (tmp_path / "slow_library.py").write_text("import clock_of_test\nclock_of_test.now_s[0] += 40")
    (tmp_path / "slow_user.py").write_text(
        "import slow_library, clock_of_test\nclock_of_test.now_s[0] += 7"
    )
    (tmp_path / "clock_of_test.py").write_text("now_s = [0.0]")
    monkeypatch.syspath_prepend(tmp_path)
    import importlib

    now_s = importlib.import_module("clock_of_test").now_s
    with ImportTimes(lambda: now_s[0]) as times:
        importlib.import_module("slow_user")
    assert times.own_s("slow_user", now_s[0]) == 7
    assert "Importing slow_user took 7 s without the libraries" in long_import("slow_user", 7)
    assert long_import("slow_user", 2) == ""
