"""Messages about the output of a command that the tuner reads in another way than expected."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.e2e.study_folder import StudyFolder, wait_until
from tuner.errors import EXIT_BUDGET_REACHED, EXIT_STUDY_FAILED

#: As a framework's progress lines look.
PRINTS = """
import sys
for epoch in (0.5, 1.0, 1.5):
    print(f"epoch {epoch} | loss {float(sys.argv[1]) * 1.67e-06:.3g} | lr 1e-3", flush=True)
"""


def a_study(folder: StudyFolder, pattern: str) -> None:
    folder.write("train.py", PRINTS)
    folder.study(
        trial={"command": ["python", "train.py", "{x}"], "metrics": {"pattern": pattern}},
        objectives={"loss": "minimize"},
        search_space={"x": {"type": "float", "low": 0.5, "high": 1}},
        devices="cpu:1",
        pruner="none",
        budget={"trials": 2},
    )


def test_number_that_a_pattern_cuts_is_said_once(study_folder: StudyFolder) -> None:
    a_study(study_folder, r"loss (?P<loss>[\d.]+)")
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert ended.out.count("Trial 0: trial.metrics.pattern takes '") == 1
    assert ended.out.count("Write {loss} in the pattern") == 1


def test_place_takes_small_numbers_and_fractions_of_an_epoch(study_folder: StudyFolder) -> None:
    a_study(study_folder, r"epoch {step} \| loss {loss}")
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "trial.metrics.pattern" not in ended.out
    assert ended.out.count("reports fractional steps (0.5)") == 1
    stored = study_folder.rows("select step, intermediate_value from trial_intermediate_values")
    assert [step for step, _ in stored] == [0, 1, 2] * 2
    assert all(0.8e-06 < value < 1.7e-06 for _, value in stored)


def test_pattern_that_matches_nothing_shows_the_lines(study_folder: StudyFolder) -> None:
    a_study(study_folder, r"accuracy {loss}")
    ended = study_folder.tune()
    assert ended.code == EXIT_STUDY_FAILED, ended.text
    assert "trial.metrics.pattern matched none of its 3 lines. The last ones:" in ended.out
    assert "epoch 1.5 | loss" in ended.out


def test_corrected_pattern_has_the_whole_budget(study_folder: StudyFolder) -> None:
    a_study(study_folder, r"accuracy {loss}")
    assert study_folder.tune("--trials", "4").code == EXIT_STUDY_FAILED
    a_study(study_folder, r"loss {loss}")
    ended = study_folder.tune("--trials", "4")
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "Retrying 3 failed trials first. Earlier failures do not count" in ended.out
    assert study_folder.states() == ["COMPLETE"] * 4


def test_the_start_says_which_python_a_command_gets(study_folder: StudyFolder) -> None:
    a_study(study_folder, r"loss {loss}")
    version = ".".join(map(str, sys.version_info[:3]))
    own = Path(sys.executable).parent / "python"
    assert f"command: python is {own} (Python {version})\n" in study_folder.tune().out


def test_log_is_followed_to_its_end(study_folder: StudyFolder) -> None:
    study_folder.write(
        "train.py",
        "import time\nprint('begun', flush=True)\n"
        "while not __import__('os').path.exists('released'):\n    time.sleep(0.05)\n"
        "print('loss 0.5', flush=True)\n",
    )
    study_folder.study(
        trial={"command": ["python", "train.py"], "metrics": {"pattern": "loss {loss}"}},
        objectives={"loss": "minimize"},
        devices="cpu:1",
        budget={"trials": 1},
    )
    running = study_folder.start()
    wait_until(lambda: "begun" in study_folder.tuner("logs", "0").out, "the trial prints")
    follower = study_folder.start_tuner("logs", "small", "0", "--follow", "--tail", "1")
    wait_until(lambda: follower.out == "begun\n", "the follower has read what is there")
    study_folder.write("released", "")
    ended = follower.wait()
    assert (ended.code, ended.out) == (0, "begun\nloss 0.5\n")
    assert running.wait().code == EXIT_BUDGET_REACHED
