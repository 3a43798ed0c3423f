"""`tuner run train.py`: programs that call `study.optimize`, without a study file."""

from __future__ import annotations

import pytest
import yaml

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED

pytestmark = pytest.mark.programs

# The objective is a class inside of a function, which no other process could import.
PROGRAM = """
import argparse

import optuna

parser = argparse.ArgumentParser()
parser.add_argument("--shift", type=float, default=0.0)
options = parser.parse_args()


def main():
    print("prepared once")

    class Objective:
        def __call__(self, trial):
            x = trial.suggest_float("x", 0.0, 1.0)
            for step in range(3):
                trial.report(x + 1 / (step + 1), step)
                if trial.should_prune():
                    raise optuna.TrialPruned
            return x + options.shift

    study = optuna.create_study(
        study_name="mine",
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=1, constraints_func=lambda t: [t.params["x"] - 2]),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=100),
    )
    study.set_user_attr("owner", "ada")
    study.enqueue_trial({"x": 0.125})
    study.optimize(Objective(), n_trials=5, n_jobs=2, callbacks=[print])
    print("ended:", len(study.trials), study.best_value > 10, study.user_attrs["owner"])
    print("feasible:", all(c <= 0 for t in study.trials for c in t.system_attrs["constraints"]))


if __name__ == "__main__":
    main()
"""

UNGUARDED = """
import optuna
study = optuna.create_study(storage="sqlite:///theirs.db", study_name="plain", load_if_exists=True)
study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
print("best is", study.best_value)
"""


_FROM_ITS_LINE = '(most recent call last):\n  File "{folder}/train.py", line 2, in <module>'


def test_a_program_is_tuned_as_it_stands(study_folder: StudyFolder) -> None:
    study_folder.write("train.py", PROGRAM)
    ended = study_folder.tune("--set", "devices=cpu:2", "--", "--shift", "10", file="train.py")
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "train.py: study 'mine', written to train.study.yaml" in ended.out
    assert "TPESampler(seed=1); MedianPruner(n_startup_trials=100)" in ended.out
    assert "not used: n_jobs=2: one trial runs on each device" in ended.out
    assert "not used: callback print: it would run in Optuna's own loop" in ended.out
    assert "ended: 5 True ada\nfeasible: True" in ended.out
    assert study_folder.states("mine.db") == ["COMPLETE"] * 5
    first = "select param_value from trial_params join trials using (trial_id) where number = 0"
    assert study_folder.rows(first, database="mine.db") == [(0.125,)]
    constraints = "select count(*) from trial_system_attributes where key = 'constraints:0'"
    assert study_folder.rows(constraints, database="mine.db") == [(5,)]
    written = yaml.safe_load((study_folder.path / "train.study.yaml").read_text())
    assert written["trial"]["function"] == "train.py:study.optimize"
    assert written["sampler"] == {"name": "tpe", "seed": 1}


def test_the_same_command_continues_and_other_commands_take_its_file(
    study_folder: StudyFolder,
) -> None:
    study_folder.write("train.py", PROGRAM)
    options = ("--set", "devices=cpu:1")
    assert study_folder.tune(*options, "--trials", "2", file="train.py").code == EXIT_BUDGET_REACHED
    again = study_folder.tuner("run", "train.py", *options, "--trials", "3")
    assert again.code == EXIT_BUDGET_REACHED, again.text
    assert study_folder.states("mine.db") == ["COMPLETE"] * 3
    # An ordinary study file, to which other machines can be given.
    from_file = study_folder.tune(*options, "--trials", "4", file="train.study.yaml")
    assert from_file.code == EXIT_BUDGET_REACHED, from_file.text
    assert len(study_folder.states("mine.db")) == 4
    assert study_folder.tuner("logs", "train.study.yaml", "0").code == 0
    assert "study: mine" in study_folder.best("train.study.yaml").out
    line = study_folder.best("train.study.yaml", "--format", "command").out
    assert float(study_folder.run("sh", "-c", line).out.splitlines()[-1]) <= 1.0


def test_a_program_without_a_guard_keeps_its_database(study_folder: StudyFolder) -> None:
    study_folder.write("plain.py", UNGUARDED)
    ended = study_folder.tune("--set", "devices=cpu:1", file="plain.py")
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert study_folder.states("theirs.db") == ["COMPLETE"] * 3
    assert "best is" in ended.out
    own = study_folder.python(
        "-c",
        "import optuna; print(len(optuna.load_study("
        "study_name='plain', storage='sqlite:///theirs.db').trials))",
    )
    assert own.out.strip() == "3"


def test_a_dry_run_starts_nothing(study_folder: StudyFolder) -> None:
    study_folder.write("train.py", PROGRAM)
    ended = study_folder.tune("--dry-run", "--set", "devices=cpu:1", file="train.py")
    assert ended.code == 0, ended.text
    assert "TPESampler(seed=1)" in ended.out
    assert not (study_folder.path / "mine.db").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import optuna\nprint('hello')\n", "train.py: does not call study.optimize(...)."),
        ("import optuna\nraise OSError('no data')\n", "OSError: no data"),
        (
            "import optuna, sys\nsys.exit(4)\n",
            "ended with exit code 4 before it called study.optimize",
        ),
        (
            "import optuna, os\nos._exit(4)\n",
            "ended with exit code 4 before it called study.optimize",
        ),
        (
            "import optuna\nstudy = optuna.create_study()\nstudy.tell(study.ask(), 1.0)\n",
            "asks for trials by itself (study.ask)",
        ),
        (
            "import optuna, multiprocessing as mp\n"
            "def work():\n    study = optuna.create_study()\n    study.optimize(print)\n"
            "mp.Process(target=work).start()\n",
            "line 4: study.optimize runs in a process that the program starts",
        ),
        (
            "import optuna, threading\nstudy = optuna.create_study()\n"
            "threading.Thread(target=study.optimize, args=(print,)).start()\n",
            "line 3: threading.Thread gets study.optimize, and calls it where the tuner cannot see",
        ),
        ("import optuna\nstudy = (\n", "SyntaxError"),
        (f"import optuna\nimport missing_package\n{UNGUARDED}", f"Traceback {_FROM_ITS_LINE}"),
    ],
)
def test_a_program_that_cannot_be_tuned_is_refused(
    study_folder: StudyFolder, text: str, message: str
) -> None:
    study_folder.write("train.py", text)
    ended = study_folder.tune(file="train.py")
    assert ended.code == EXIT_BAD_INPUT, ended.text
    assert message.replace("{folder}", str(study_folder.path)) in ended.err
    assert study_folder.files() == {"train.py", "forecast.py"}


def test_no_study_file_is_proposed_where_other_code_calls_optimize(
    study_folder: StudyFolder,
) -> None:
    study_folder.write(
        "train.py",
        "import optuna\nstudy = optuna.create_study()\nclient.submit(study.optimize, print)\n",
    )
    ended = study_folder.tuner("init", "proposed.yaml", "--from", "train.py")
    assert ended.code == EXIT_BAD_INPUT, ended.text
    assert "line 3: client.submit gets study.optimize" in ended.err
    assert study_folder.files() == {"train.py", "forecast.py"}


@pytest.mark.parametrize(
    "second",
    ["study.optimize(work)", "optuna.create_study().optimize(work)"],
    ids=["same-study", "another-study"],
)
def test_a_second_optimize_of_the_program_is_named_and_not_run(
    study_folder: StudyFolder, second: str
) -> None:
    work = "def work(trial):\n    print('worked')\n    return 1.0\n"
    study_folder.write("plain.py", f"{UNGUARDED}{work}{second}\nprint('after')\n")
    ended = study_folder.tune("--set", "devices=cpu:1", file="plain.py")
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "not used: of the calls of study.optimize in lines 4, 9, all but the first" in ended.out
    assert "best is" in ended.out
    assert "worked" not in ended.text
    assert "after" not in ended.out.partition("best is")[2].replace("after study.optimize", "")
    assert "The rest of the program, from the study.optimize in line 9 on, is not run." in ended.out
    proposed = study_folder.tuner("init", "proposed.yaml", "--from", "plain.py")
    assert "not used: of the calls of study.optimize in lines 4, 9" in proposed.out, proposed.text


def test_a_block_around_optimize_is_named_and_left_before_trials(study_folder: StudyFolder) -> None:
    study_folder.write(
        "plain.py",
        "import contextlib, optuna\nopened = []\n"
        "@contextlib.contextmanager\ndef tracking():\n"
        "    opened.append(1)\n    try:\n        yield\n    finally:\n        opened.clear()\n"
        "def objective(trial):\n    return float(len(opened))\n"
        "study = optuna.create_study()\n"
        "with tracking():\n"
        "    study.optimize(objective, n_trials=2)\n"
        "    print('open again:', len(opened), study.best_value)\n",
    )
    ended = study_folder.tune("--set", "devices=cpu:1", file="plain.py")
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "with tracking() in line 13: the block is left before the trials run" in ended.out
    assert "open again: 1 0.0" in ended.out


@pytest.mark.parametrize("command", ["validate", "status", "best"])
def test_other_commands_name_the_file_that_they_take(
    study_folder: StudyFolder, command: str
) -> None:
    study_folder.write("train.py", PROGRAM)
    ended = study_folder.tuner(command, "train.py")
    assert ended.code == EXIT_BAD_INPUT
    assert "train.py: is a Python program, not a study file." in " ".join(ended.err.split())
    assert "train.study.yaml; use that file here" in " ".join(ended.err.split())


def test_a_program_without_optuna_is_not_started(study_folder: StudyFolder) -> None:
    """It would train alone, for hours, before it is refused."""
    study_folder.write("train.py", "open('trained', 'w')\n")
    ended = study_folder.tune(file="train.py")
    assert (ended.code, ended.out) == (EXIT_BAD_INPUT, "")
    assert ended.err == (
        "train.py: does not use Optuna, and was not started. Write a study file, with the program "
        "as a command: tuner init --from train.py\n"
    )
    assert not (study_folder.path / "trained").exists()


def test_a_command_with_a_search_of_another_library_is_named(study_folder: StudyFolder) -> None:
    text = "import sys\nif len(sys.argv) > 9:\n    import wandb\n    wandb.agent('sweep')\n"
    study_folder.write("train.py", text + "print('{\"value\": 1}')\n")
    study_folder.study(trial={"command": ["python", "train.py", "{x}"]}, budget={"trials": 1})
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED
    assert "train.py line 4: wandb.agent starts a search of W&B, whose trials" in ended.out


def test_a_missing_program_is_named(study_folder: StudyFolder) -> None:
    ended = study_folder.tune(file="none.py")
    assert ended.code == EXIT_BAD_INPUT
    assert "none.py: there is no such file" in ended.err


def test_a_study_file_that_was_edited_is_kept(study_folder: StudyFolder) -> None:
    study_folder.write("train.py", PROGRAM)
    study_folder.write("train.study.yaml", "study: mine\n")
    ended = study_folder.tune(file="train.py")
    assert ended.code == EXIT_BAD_INPUT
    assert "python -m tuner.run train.study.yaml" in ended.err
    assert (study_folder.path / "train.study.yaml").read_text() == "study: mine\n"


def test_a_password_is_not_written_down(study_folder: StudyFolder) -> None:
    study_folder.write(
        "train.py",
        "import optuna\nfrom unittest import mock\n"
        "study = optuna.create_study(storage='postgresql://me:hunter2@127.0.0.1:1/x')\n"
        "study.optimize(print)\n",
    )
    ended = study_folder.tune(file="train.py")
    assert ended.code == EXIT_BAD_INPUT
    assert "hunter2" not in ended.text
    written = (study_folder.path / "train.study.yaml").read_text()
    assert "hunter2" not in written
    assert "storage: '${PROGRAM_STORAGE}'" in written


def test_calls_that_a_study_file_overrules_are_named(study_folder: StudyFolder) -> None:
    study_folder.write(
        "train.py",
        "import optuna\n"
        "def objective(trial):\n    return trial.params['x']\n"
        "if __name__ == '__main__':\n"
        "    study = optuna.create_study(direction='maximize')\n"
        "    study.optimize(objective, n_trials=100)\n",
    )
    study_folder.study(trial={"function": "train:objective"}, budget={"trials": 1})
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert (
        "train.py line 6: study.optimize(objective, n_trials=100) is not used, because study.yaml "
        "describes the study (in the study file, n_trials is budget.trials)." in ended.out
    )
    assert "direction is objectives" in ended.out
    assert "To run the study of the program instead: python -m tuner.run train.py" in ended.out


def test_a_module_whose_import_would_run_a_study_is_refused(study_folder: StudyFolder) -> None:
    study_folder.write("plain.py", UNGUARDED)
    study_folder.study(trial={"function": "plain:objective"})
    ended = study_folder.tune()
    assert ended.code == EXIT_BAD_INPUT
    assert "plain.py calls study.optimize(lambda trial" in ended.err
    assert "in line 4 when it is imported" in ended.err
    assert not (study_folder.path / "theirs.db").exists()


def test_a_command_that_runs_a_study_of_its_own_is_named(study_folder: StudyFolder) -> None:
    study_folder.write("plain.py", UNGUARDED)
    study_folder.study(trial={"command": ["python", "plain.py"]}, budget={"trials": 1})
    ended = study_folder.tune()
    assert "runs a study of its own in each trial" in ended.out
    assert "python -m tuner.run plain.py" in ended.out


@pytest.mark.parametrize(
    ("text", "told"),
    [(None, "there is no file"), ("def objective(:", "running train.py fails:\n      File")],
    ids=["removed", "broken"],
)
@pytest.mark.parametrize("command", ["validate", "run"])
def test_a_program_that_cannot_be_read_any_more_is_named(
    command: str, text: str | None, told: str, study_folder: StudyFolder
) -> None:
    study_folder.study(trial={"function": "train.py:study.optimize"}, budget={"trials": 1})
    if text is not None:
        study_folder.write("train.py", text)
    ended = study_folder.tuner(command, "study.yaml")
    assert ended.code == EXIT_BAD_INPUT
    assert f"study.yaml: trial.function is 'train.py:study.optimize', but {told}" in ended.text
    assert "tuner/frameworks" not in ended.text


def test_init_proposes_the_study_file_of_a_program(study_folder: StudyFolder) -> None:
    study_folder.write("train.py", PROGRAM)
    made = study_folder.tuner("init", "--from", "train.py")
    assert made.code == 0, made.text
    assert "not used: n_jobs=2" in made.out
    assert "not carried over: 1 enqueued trial" in made.out
    text = (study_folder.path / "study.yaml").read_text()
    assert "Generated" not in text
    assert yaml.safe_load(text)["budget"] == {"trials": 5}
    again = study_folder.tuner("init", "--from", "train.py")
    assert again.code == EXIT_BAD_INPUT
    assert "exists already" in again.err
    fine = study_folder.tuner("validate", "study.yaml")
    assert fine.code == 0, fine.text
    assert "is fine" in fine.out
    ended = study_folder.tune("--set", "devices=cpu:1", "--trials", "1")
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
