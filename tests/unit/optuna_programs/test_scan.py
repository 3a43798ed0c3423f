"""Calls of Optuna are found in a program that is not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.frameworks.optuna_programs.scan import (
    FoundCall,
    find_calls,
    find_passed_on,
    has_shared_trials,
    mentions_optuna,
)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return tmp_path / "train.py"


def found(program: Path, text: str) -> list[FoundCall]:
    program.write_text(text)
    return find_calls(program)


def test_calls_below_a_guard_are_found_with_line_and_arguments(program: Path) -> None:
    calls = found(
        program,
        "import optuna\n"
        "if __name__ == '__main__':\n"
        "    study = optuna.create_study(direction='maximize')\n"
        "    study.enqueue_trial({'x': 1})\n"
        "    study.optimize(objective, n_trials=3, timeout=60)\n",
    )
    assert [(call.name, call.line) for call in calls] == [
        ("create_study", 3),
        ("enqueue_trial", 4),
        ("optimize", 5),
    ]
    assert calls[2].text == "study.optimize(objective, n_trials=3, timeout=60)"
    assert calls[2].arguments == {"n_trials": "3", "timeout": "60"}
    assert not any(call.is_run_by_import for call in calls)


@pytest.mark.parametrize(
    ("text", "is_run"),
    [
        ("optuna.create_study().optimize(f, 3)\n", True),
        ("s = optuna.create_study()\ns.optimize(f)\n", True),
        ("if True:\n    s = optuna.create_study()\n    s.optimize(f)\n", True),
        ("def main():\n    s = optuna.create_study()\n    s.optimize(f)\n", False),
        ("if '__main__' == __name__:\n    optuna.load_study().optimize(f)\n", False),
    ],
)
def test_what_an_import_runs_is_known(program: Path, text: str, is_run: bool) -> None:
    calls = found(program, f"import optuna\n{text}")
    assert [call.is_run_by_import for call in calls if call.name == "optimize"] == [is_run]


@pytest.mark.parametrize(
    "start", ["mp.spawn(work, nprocs=2)", "mp.Process(target=work).start()", "work(0)"]
)
def test_a_study_in_another_process_is_known(program: Path, start: str) -> None:
    calls = found(
        program,
        "import optuna\n"
        "def work(rank):\n"
        "    study = optuna.create_study()\n"
        "    study.optimize(f)\n"
        f"{start}\n",
    )
    assert calls[-1].is_in_other_process is (start != "work(0)")
    assert calls[-1].is_spawned is ("Process" not in start)


@pytest.mark.parametrize(
    ("call", "function"),
    [
        ("client.submit(study.optimize, f, n_trials=7)", "client.submit"),
        ("Thread(target=study.optimize, args=(f,)).start()", "Thread"),
        ("study.optimize(model.optimize)", None),
        ("study.optimize(f)", None),
    ],
)
def test_a_study_that_other_code_runs_is_known(
    program: Path, call: str, function: str | None
) -> None:
    program.write_text(f"import optuna\nstudy = optuna.create_study()\n{call}\n")
    found = find_passed_on(program)
    assert (found and (found.line, found.function)) == (function and (3, function))


@pytest.mark.parametrize(
    ("text", "are_shared"),
    [
        ("import optuna\ntrial = optuna.integration.TorchDistributedTrial(trial)\n", True),
        ("from optuna_integration import TorchDistributedTrial as T\n", False),
        ("import optuna\n# TorchDistributedTrial(trial)\n", False),
        ("import optuna\nTorchDistributedTrial(\n", False),
    ],
)
def test_shared_trials_are_known(program: Path, text: str, are_shared: bool) -> None:
    program.write_text(text)
    assert has_shared_trials(program) is are_shared


@pytest.mark.parametrize(
    "text",
    [
        "model.optimize(x)\n",
        "import optuna\nmodel = Model()\nmodel.optimize(x)\n",
        "import optuna\nstudy = optuna.create_study(\n",
        "\0",
    ],
)
def test_nothing_is_found_where_nothing_is(program: Path, text: str) -> None:
    assert found(program, text) == []


def test_a_missing_file_has_no_calls(tmp_path: Path) -> None:
    assert find_calls(tmp_path / "none.py") == []


@pytest.mark.parametrize(
    ("files", "is_mentioned"),
    [
        ({"train.py": "print(1)"}, False),
        ({"train.py": "import optuna"}, True),
        ({"train.py": "import absent, os"}, False),
        ({"train.py": "import parts", "parts.py": "import train, optuna"}, True),
        ({"train.py": "from parts import core", "parts/core.py": "import optuna"}, True),
        ({"train.py": "from parts import core", "parts/__init__.py": "import optuna"}, True),
        ({"train.py": "import parts", "parts.py": "import train"}, False),
        ({"train.py": "this is no Python"}, True),
    ],
)
def test_program_may_use_optuna(tmp_path: Path, files: dict[str, str], is_mentioned: bool) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert mentions_optuna(tmp_path / "train.py") == is_mentioned
