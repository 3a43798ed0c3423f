"""As many file descriptors as so many devices need, or a message before anything starts."""

from __future__ import annotations

import shlex
import sys

from tests.e2e.study_folder import Ended, StudyFolder
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED

TRAIN = """
import pathlib, resource, time

def train(trial):
    pathlib.Path(f"began-{trial.number}").touch()
    while len(list(pathlib.Path().glob("began-*"))) < 20:
        time.sleep(0.02)
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
"""
COMMAND = """
import resource
print('{"value": %d}' % resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def tune_under(limits: str, folder: StudyFolder, *words: str) -> Ended:
    """The command, as a shell with other limits starts it."""
    command = shlex.join([sys.executable, "-m", "tuner.run", "study.yaml", *words])
    return folder._start(["sh", "-c", f"{limits}; exec {command}"]).wait()


def test_soft_limit_is_raised_and_trials_get_theirs_back(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", TRAIN)
    study_folder.study(devices="cpu:20", budget={"trials": 20}, pruner="none")
    ended = tune_under("ulimit -S -n 100", study_folder)
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    assert study_folder.rows("select value from trial_values") == [(100,)] * 20


def test_command_gets_the_limit_of_the_users_shell(study_folder: StudyFolder) -> None:
    study_folder.write("train.py", COMMAND)
    trial = {"command": ["python", "train.py"]}
    study_folder.study(trial=trial, devices="cpu:1", budget={"trials": 1})
    assert tune_under("ulimit -S -n 123", study_folder).code == EXIT_BUDGET_REACHED
    assert study_folder.rows("select value from trial_values") == [(123,)]


def test_more_devices_than_the_hard_limit_allows_are_refused(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", TRAIN)
    study_folder.study(devices="cpu:500")
    for words in ((), ("--dry-run",)):
        ended = tune_under("ulimit -n 1024", study_folder, *words)
        assert ended.code == EXIT_BAD_INPUT
        assert ended.err.startswith(
            "study.yaml: devices is cpu:500, for which 2,128 open files are needed, but this "
            "process may have 1,024 at most. Run at most 224 trials at a time here, or raise "
        )
    assert study_folder.files() == {"forecast.py", "study.yaml"}


def test_shares_of_a_device_count_each(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", TRAIN)
    trial = {"function": "forecast:train", "resources": {"cpus": 0.1}}
    study_folder.study(devices="cpu:30", trial=trial)
    ended = tune_under("ulimit -n 1024", study_folder)
    assert ended.code == EXIT_BAD_INPUT
    assert "devices is cpu:30, for which 1,328 open files are needed" in ended.err
