"""What is asked of a running study from a second terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.study_folder import Ended, Running, StudyFolder, wait_until
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED, EXIT_INTERRUPTED

#: Each trial runs until the test lets it go, and hears when it is to stop.
PATIENT = """
import time
from pathlib import Path

import optuna

def train(trial):
    x = trial.params["x"]
    for step in range(10_000):
        trial.report(x, step)
        if trial.should_prune():
            raise optuna.TrialPruned
        if Path("go").exists():
            return x
        time.sleep(0.05)
"""


@pytest.fixture
def folder(study_folder: StudyFolder) -> StudyFolder:
    study_folder.write("forecast.py", PATIENT)
    study_folder.study(pruner="none", budget={"trials": 4})
    return study_folder


@pytest.fixture
def running(folder: StudyFolder) -> Running:
    started = folder.start()
    wait_until(lambda: started.out.count(": started on") == 2, "two trials run")
    return started


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StudyFolder]:
    """The folder of one study for all tests that change nothing of it: two trials run."""
    folder = StudyFolder(path=tmp_path_factory.mktemp("busy"))
    folder.write("forecast.py", PATIENT)
    folder.study(pruner="none", budget={"trials": 4})
    started = folder.start()
    wait_until(lambda: started.out.count(": started on") == 2, "two trials run")
    yield folder
    folder.end_all()


def let_go(folder: StudyFolder) -> None:
    folder.write("go", "")


def refused(ended: Ended) -> str:
    assert (ended.code, ended.out) == (EXIT_BAD_INPUT, "")
    return ended.err


def said(running: Running, words: str) -> Callable[[], bool]:
    return lambda: words in running.out


def test_pause_and_resume(folder: StudyFolder, running: Running) -> None:
    paused = folder.tuner("pause", "small")
    assert paused.code == 0
    assert f"(pid {running.process.pid})" in paused.out
    wait_until(said(running, "Paused: no trial starts until"), "it is paused")
    let_go(folder)
    wait_until(lambda: folder.states() == ["COMPLETE"] * 2, "those that ran have ended")
    assert "paused by" in folder.tuner("status").out
    assert running.process.poll() is None
    assert folder.tuner("resume").code == 0
    assert running.wait().code == EXIT_BUDGET_REACHED
    assert folder.states() == ["COMPLETE"] * 4
    events = folder.rows("select name, detail from tuner_events where name in ('pause', 'resume')")
    assert [name for name, _ in events] == ["pause", "resume"]
    assert all("asked for by" in detail for _, detail in events)


def test_stop_one_trial(folder: StudyFolder, running: Running) -> None:
    assert folder.tuner("stop", "--trial", "1").code == 0
    wait_until(said(running, "Trial 1 is stopped (asked for by"), "it hears")
    wait_until(lambda: folder.states()[1] == "PRUNED", "the trial has ended")
    assert folder.states()[0] == "RUNNING"
    told = folder.tuner("why", "small", "1")
    assert "Trial 1 of study 'small': pruned" in told.out
    assert "attempt 1: pruned (commanded)" in told.out
    assert "Trial 1 is stopped (asked for by" in told.out
    assert "does not run: it has ended already" in refused(folder.tuner("stop", "--trial", "1"))
    let_go(folder)
    assert running.wait().code == EXIT_BUDGET_REACHED


def test_stop_the_study_and_start_it_again(folder: StudyFolder, running: Running) -> None:
    assert folder.tuner("stop").code == 0
    ended = running.wait()
    assert ended.code == EXIT_INTERRUPTED
    assert "stopped by" in ended.out
    assert folder.states() == ["WAITING"] * 2
    waiting = folder.tuner("why", "study.yaml", "0").out
    assert "No dispatcher runs the study: start it again" in waiting
    assert "nothing to stop" in refused(folder.tuner("stop"))
    let_go(folder)
    assert folder.tune().code == EXIT_BUDGET_REACHED
    assert folder.states() == ["COMPLETE"] * 4


def test_set_changes_the_budget(folder: StudyFolder, running: Running) -> None:
    done = folder.tuner("set", "study.yaml", "budget.trials=6")
    assert done.code == 0
    assert "change it there, too" in done.out
    wait_until(said(running, "Changed: budget.trials=6"), "it hears")
    wait_until(lambda: " of 6" in folder.tuner("status", "study.yaml").out, "status knows")
    let_go(folder)
    assert running.wait().code == EXIT_BUDGET_REACHED
    assert folder.states() == ["COMPLETE"] * 6


def test_set_changes_the_devices(folder: StudyFolder, running: Running) -> None:
    done = folder.tuner("set", "devices=cpu:3")
    assert done.code == 0, done.text
    assert f"(pid {running.process.pid}): Changed: devices=cpu:3 (asked for by" in done.out
    assert "It has cpu:0, cpu:1, cpu:2 now." in done.out
    wait_until(lambda: running.out.count(": started on") == 3, "a third trial runs")
    assert "cpu:0, cpu:1, cpu:2" in folder.tuner("status").out
    fewer = folder.tuner("set", "small", "devices=cpu:1", "budget.trials=8")
    assert "cpu:1, cpu:2 get no trial any more and are given back" in fewer.out
    let_go(folder)
    ended = running.wait()
    assert ended.code == EXIT_BUDGET_REACHED
    places = [line.partition("started on ")[2] for line in ended.out.splitlines()]
    started = [place.partition(":")[0] + place[3:5] for place in places if place]
    assert started[:3] == ["cpu:0", "cpu:1", "cpu:2"]
    assert started[3:] == ["cpu:0"] * 5
    events = folder.rows("select detail from tuner_events where name = 'set'")
    assert len(events) == 2
    assert all("asked for by" in detail for (detail,) in events)


def test_devices_that_are_not_there_are_refused(folder: StudyFolder, running: Running) -> None:
    ended = folder.tuner("set", "devices=[7]", "budget.trials=9")
    assert ended.code == EXIT_BAD_INPUT
    assert "Not changed: devices=[7], budget.trials=9 (asked for by" in ended.err
    assert "no NVIDIA driver" in ended.err
    let_go(folder)
    assert running.wait().code == EXIT_BUDGET_REACHED
    assert folder.states() == ["COMPLETE"] * 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("set", "devices=gpu"), "devices is 'gpu'. Allowed: auto, all, cpu:N"),
        (("set", "devices=0"), "To use that one device, write [0]."),
        (("set", "devices=cpu:2", "--host", "moon"), "--host is moon, where no dispatcher of this"),
        (("set", "budget.trials=5", "--host", "moon"), "--host goes with devices=...: a budget is"),
        (("set", "budget.trials=many"), "budget.trials is 'many', but must be a whole number"),
        (("set", "budget.trials=0"), "budget.trials is 0, but must be at least 1"),
        (("set", "trials=9"), "trials is a key of budget. Write budget.trials=9"),
        (("set", "sampler.seed=1"), "sampler.seed can't be changed by tuner set. What can:"),
        (("set", "budget"), "takes KEY=VALUE, such as budget.trials=200"),
        (("stop", "--trial", "77"), "There is no trial 77 in this study."),
        (("retry", "--trial", "0"), "Trial 0 runs now: there is nothing to repeat."),
        (("retry", "--trial", "9"), "There is no trial 9 in study 'small'."),
        (("why", "9"), "There is no trial 9 in study 'small'."),
        (("why", "9", "small"), "There is no trial 9 in study 'small'."),
        (("why", "small"), "is given 'small', but takes a study and the number of a trial"),
        (("why", "smal", "1"), "has no study 'smal'. Did you mean 'small'?"),
        (("set", "none.yaml", "budget.trials=5"), "none.yaml: there is no such file."),
        (("pause", "--study", "other"), "has no study 'other'"),
    ],
)
def test_what_cannot_be(busy: StudyFolder, words: tuple[str, ...], message: str) -> None:
    assert message in refused(busy.tuner(*words))


def test_retry_takes_the_same_parameters(folder: StudyFolder, running: Running) -> None:
    let_go(folder)
    assert running.wait().code == EXIT_BUDGET_REACHED
    done = folder.tuner("retry", "--trial", "2")
    assert done.out.startswith("Trial 4 of study 'small' waits, with the parameters of trial 2.")
    assert "waits" in folder.tuner("why", "4").out
    assert "1 trial waits for a larger budget: --trials 5\n" in folder.tune().out
    assert folder.tune("--trials", "5").code == EXIT_BUDGET_REACHED
    params = [json.loads(attempt.params) for attempt in folder.attempts()]
    assert params[4] == params[2]
    assert "repeats trial 2" in folder.tuner("why", "4").out


def test_retry_while_the_study_runs_is_noted(folder: StudyFolder, running: Running) -> None:
    assert folder.tuner("stop", "--trial", "1").code == 0
    wait_until(lambda: folder.states()[1] == "PRUNED", "the trial has ended")
    done = folder.tuner("retry", "--trial", "1")
    assert done.code == 0
    # Those that were suggested ahead may have the rest of the budget.
    assert folder.tuner("set", f"budget.trials={int(done.out.split()[1]) + 1}").code == 0
    wait_until(said(running, "Trial 1 is tried once more, as trial"), "it hears")
    let_go(folder)
    assert running.wait().code == EXIT_BUDGET_REACHED
    ((detail,),) = folder.rows("select detail from tuner_events where name = 'retry'")
    assert "(asked for by" in detail
    new = int(detail.partition("as trial ")[2].split()[0])
    assert f"Trial {new} of study 'small' waits" in done.out
    params = {each.trial: json.loads(each.params) for each in folder.attempts()}
    assert params[new] == params[1]


def test_why_a_trial_was_pruned_and_why_one_failed(study_folder: StudyFolder) -> None:
    program = """
import optuna

def train(trial):
    if trial.number == 6:
        raise ValueError("the sixth always fails")
    trial.report(float(trial.number == 5), 1)
    if trial.should_prune():
        raise optuna.TrialPruned
    return 0.0
"""
    study_folder.write("forecast.py", program)
    study_folder.study(pruner="median", devices="cpu:1", budget={"trials": 7})
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    pruned = study_folder.tuner("why", "5").out
    assert "Trial 5 of study 'small': pruned" in pruned
    assert (
        "Median pruned it at step 1 (value 1): its best value so far, 1, is above 0, the median "
        "of 5 completed trials at that step" in pruned
    )
    failed = study_folder.tuner("why", "6").out
    assert "attempt 1: failed (exception)" in failed
    assert "ValueError: the sixth always fails" in failed
    assert "whole log: " in failed


def test_set_on_an_idle_study_is_kept_for_its_next_start(study_folder: StudyFolder) -> None:
    folder = study_folder
    folder.study(budget={"trials": 1}, devices="cpu:1")
    assert folder.tune().code == EXIT_BUDGET_REACHED
    done = folder.tuner("set", "budget.trials=2", "devices=cpu:2")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "No dispatcher runs study 'small' now. Kept for its next start: budget.trials=2, "
        "devices=cpu:2.\n"
    )
    status = folder.tuner("status").out
    assert "kept for the next start: budget.trials=2 (asked for by " in status
    assert "kept for the next start: devices=cpu:2 (asked for by " in status

    ended = folder.tune()
    assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    assert "Changed: budget.trials=2, devices=cpu:2 (asked for by " in ended.out
    assert "budget reached: 2 trials" in ended.out
    # It holds for one start.
    assert "kept for" not in folder.tuner("status").out
    assert "budget reached: 1 trials" in folder.tune().out

    # Who changes the key afterwards, in the file or by a flag, means that.
    assert folder.tuner("set", "budget.trials=9").code == 0
    ended = folder.tune("--trials", "3")
    assert re.search(
        r"^budget\.trials=9 was kept for this start \(asked for by \S+\), but the study file or "
        r"this command line has changed budget\.trials to 3 since\. That counts\. To set it now: "
        r"tuner set budget\.trials=9$",
        ended.out,
        re.MULTILINE,
    )
    assert folder.states() == ["COMPLETE"] * 3
    told = folder.tuner("set", "devices=cpu:2", "--host", "moon")
    assert (told.code, told.err) == (
        EXIT_BAD_INPUT,
        "--host is for a running study. No dispatcher runs this one now: leave it out.\n",
    )


def test_status_counts_against_the_flag_of_the_last_start(study_folder: StudyFolder) -> None:
    folder = study_folder
    folder.study(budget={"trials": 9}, devices="cpu:1")
    assert folder.tune("--trials", "2").code == EXIT_BUDGET_REACHED
    status = folder.tuner("status").out
    assert "finished (budget reached: 2 trials)" in status
    assert "spent: 2 of 2 trials begun" in status
    assert "progress: 100 % (2 of 2 trials finished, 2 begun)" in status
