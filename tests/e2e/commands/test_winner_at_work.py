"""The winner's command line: `tuner best --format command`, with the words after `--`."""

from __future__ import annotations

import shlex
import subprocess

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED

SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--data", required=True)
args = parser.parse_args()
print('{"value": %r, "length": %d}' % (args.lr, len(args.data)))
"""


def write_study(folder: StudyFolder) -> None:
    folder.write("train.py", SCRIPT)
    folder.study(trial={"command": ["python", "train.py", "--lr={x}"]}, budget={"trials": 2})


def test_the_command_of_the_winner_runs_as_printed(study_folder: StudyFolder) -> None:
    write_study(study_folder)
    ended = study_folder.tune("--", "--data", "/mnt/a b")
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    best = study_folder.tuner("best", "study.yaml", "--format", "command")
    (x,) = study_folder.rows(
        "select p.param_value from trial_params p join trial_values v "
        "on v.trial_id = p.trial_id order by v.value limit 1"
    )
    assert best.out == f"python train.py --lr={x[0]} --data '/mnt/a b'\n"
    again = subprocess.run(
        shlex.split(best.out), cwd=study_folder.path, capture_output=True, text=True, check=True
    )
    assert again.stdout == f'{{"value": {x[0]}, "length": 8}}\n'
    assert study_folder.tuner("best", "--format", "hydra").out == f"x={x[0]}\n"


def test_words_for_a_function_are_refused(study_folder: StudyFolder) -> None:
    study_folder.study()
    ended = study_folder.tune("--", "--data", "x")
    assert ended.code == EXIT_BAD_INPUT
    assert "the arguments after -- (--data x) are for the program of trial.command" in ended.err


def test_a_study_of_optuna_has_no_command(study_folder: StudyFolder) -> None:
    code = (
        "import optuna; optuna.create_study(storage='sqlite:///o.db', study_name='s')"
        ".optimize(lambda trial: trial.suggest_float('x', 0, 1), n_trials=1)"
    )
    assert study_folder.python("-c", code).code == 0
    ended = study_folder.tuner("best", "sqlite:///o.db", "--format", "command")
    assert ended.code != 0
    assert "so its command is not known. Use another format: --format args." in ended.err


def test_the_command_of_the_winner_makes_the_folder_that_it_names(
    study_folder: StudyFolder,
) -> None:
    script = "import sys; open(sys.argv[2] + '/model', 'w').close(); print({'value': sys.argv[1]})"
    study_folder.write("train.py", script.replace("{'value': sys.argv[1]}", "'value', sys.argv[1]"))
    study_folder.study(
        trial={
            "command": ["python", "train.py", "{x}", "{checkpoint_dir}"],
            "metrics": {"pattern": "value {value}"},
        },
        budget={"trials": 1},
    )
    lines = study_folder.tuner("run", "study.yaml", "--dry-run").out.splitlines()
    alone = lines[lines.index("to run it alone:") + 1]
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    best = study_folder.tuner("best", "study.yaml", "--format", "command").out
    for line, folder in ((alone, "checkpoints-alone"), (best, "checkpoints-of-trial-0")):
        subprocess.run(["sh", "-c", line], cwd=study_folder.path, check=True)
        assert (study_folder.path / folder / "model").exists()


def test_a_function_of_main_has_no_command(study_folder: StudyFolder) -> None:
    code = (
        "import tuner\ndef train(trial): return trial.params.x\n"
        "tuner.tune(train, space={'x': [1, 2]}, objectives={'value': 'minimize'}, trials=1, "
        "devices='cpu:1', name='s')"
    )
    study_folder.write("call.py", code)
    assert study_folder.python("call.py").code == 0
    ended = study_folder.tuner("best", "s.db", "--format", "command")
    assert ended.code != 0
    assert "its trials call a function that was passed to tuner.tune, so its command" in ended.err
    ended = study_folder.tuner("run", "s.db")
    assert ended.code == EXIT_BAD_INPUT
    assert "s.db: is a database. Give the study file;" in ended.err
