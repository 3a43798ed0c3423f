"""Programs that print, report or keep more than they should: they end, and the study goes on."""

from __future__ import annotations

import signal

from tests.e2e.study_folder import StudyFolder, wait_until
from tuner.errors import EXIT_BUDGET_REACHED, EXIT_STUDY_FAILED

ONE = {"devices": "cpu:1", "budget": {"trials": 1}}

LONG_LINE = """
import sys

for _ in range(100):
    sys.stdout.write("x" * 1_000_000)
print()
print('{"step": 1, "value": 0.25}')
"""


def test_line_of_100_mb_costs_a_moment(study_folder: StudyFolder) -> None:
    study_folder.write("train.py", LONG_LINE)
    study_folder.study(trial={"command": ["python", "train.py"]}, **ONE)
    ended = study_folder.tune()
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    assert study_folder.rows("select value from trial_values") == [(0.25,)]


PROGRESS_BAR = """
import sys, time

for step in range(50):
    sys.stderr.write(f"\\rstep {step} loss {1 / (step + 1):.3f} |{'#' * step:<50}|")
    sys.stderr.flush()
"""


def test_metrics_of_a_progress_bar_are_found(study_folder: StudyFolder) -> None:
    study_folder.write("train.py", PROGRESS_BAR)
    pattern = {"pattern": r"step (?P<step>\d+) loss (?P<value>[\d.]+)"}
    study_folder.study(trial={"command": ["python", "train.py"], "metrics": pattern}, **ONE)
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    assert study_folder.rows("select value from trial_values") == [(0.02,)]
    steps = study_folder.rows("select step from trial_intermediate_values order by step")
    assert steps == [(step,) for step in range(50)]


TOO_LARGE = """
def train(trial):
    trial.set_user_attr("weights", "x" * 20_000_000)
    return 1.0

def raises(trial):
    raise ValueError("x" * 20_000_000 + " is what it said")

def returns(trial):
    return {f"loss-{i}": 0.5 for i in range(1_000_000)}
"""


def test_attribute_above_the_limit_is_named_with_its_size(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", TOO_LARGE)
    study_folder.study(**ONE)
    ended = study_folder.tune()
    assert ended.code == EXIT_STUDY_FAILED
    (attempt,) = study_folder.attempts()
    assert (attempt.outcome, attempt.cause) == ("failed", "exception")
    assert "set_user_attr: the value of 'weights' takes 20,000,0" in attempt.detail
    assert "bytes as JSON, but the limit is 16,777,216 bytes." in attempt.detail


def test_huge_error_and_huge_result_are_told_in_short(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", TOO_LARGE)
    for function, said in (
        ("raises", "is what it said"),
        ("returns", "objectives: {loss-0: minimize}."),
    ):
        trial = {"function": f"forecast:{function}"}
        study_folder.study(study=function, trial=trial, storage="sqlite:///small.db", **ONE)
        assert study_folder.tune().code == EXIT_STUDY_FAILED
        attempt = study_folder.attempts()[-1]
        assert attempt.outcome == "failed"
        assert attempt.detail.endswith(said)
    assert len(study_folder.attempts()) == 2


STANDS_STILL = """
import pathlib, time

def train(trial):
    pathlib.Path("began").touch()
    while not pathlib.Path("stopped").exists():
        time.sleep(0.01)
    for step in range(20_000):
        trial.report(step / 20_000, step)
    pathlib.Path("reported").touch()
    return 1.0
"""


def test_training_goes_on_while_the_dispatcher_stands_still(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", STANDS_STILL)
    study_folder.study(**ONE)
    running = study_folder.start()
    wait_until(lambda: "began" in study_folder.files(), "the trial has begun")
    running.signal(signal.SIGSTOP)
    study_folder.write("stopped", "")
    wait_until(lambda: "reported" in study_folder.files(), "all is reported")
    running.signal(signal.SIGCONT)
    assert running.wait().code == EXIT_BUDGET_REACHED
    ((n_steps,),) = study_folder.rows("select count(*) from trial_intermediate_values")
    assert n_steps == 20_000


PRINTS = """
import ctypes, os, sys

def train(trial):
    print("the first line")
    line = "x" * 1023
    for _ in range(20 * 1024):
        print(line)
    ctypes.CDLL(None).puts(b"from a library")
    ctypes.CDLL(None).fflush(None)
    print("the last line", flush=True)
    os.abort()

if __name__ == "__main__":
    train(None)
"""


def test_a_log_keeps_its_beginning_and_a_crash_s_last_lines(study_folder: StudyFolder) -> None:
    study_folder.write("forecast.py", PRINTS)
    for name, program in (
        ("function", {"function": "forecast:train"}),
        ("command", {"command": ["python", "forecast.py"]}),
    ):
        trial = {**program, "max_log": "2MiB"}
        study_folder.study(study=name, trial=trial, storage="sqlite:///small.db", **ONE)
        assert study_folder.tune().code == EXIT_STUDY_FAILED
        log = study_folder.path / f"tuner-files/{name}/trial-0/attempt-1.log"
        assert log.stat().st_size < 2.1 * 1024**2
        shown = study_folder.tuner("logs", "0").out
        assert shown == log.read_text()
        assert shown.startswith("the first line\nxxx")
        assert "bytes are left out here: a log keeps its first and its last part" in shown
        lines = shown.splitlines()
        assert "the last line" in lines[-40:]
        assert "from a library" in lines[-40:]
        assert "the last line" in study_folder.attempts()[-1].detail
