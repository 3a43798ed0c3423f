"""Whether the judge of chaos sees what it is to see: repeated work, and work that was saved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from tests.chaos.blame import UNKNOWN, blame
from tests.chaos.books import RUNG_KEY, is_checkable, judge_curve, judge_pruned
from tests.chaos.checked import N_STEPS, STEP_S, expected_value, first_number, next_number
from tests.chaos.keeper import in_container
from tests.chaos.play import Struck
from tests.chaos.site import rungs_of
from tests.chaos.step_log import Repeated, StepLog, find_repeated
from tests.e2e.study_folder import wait_until


def a_log(folder: Path, *lines: str) -> StepLog:
    """Of trial 3; a line is what happened, the attempt and the step, one second apart."""
    rows = []
    for at_s, line in enumerate(lines):
        what, attempt, step = line.split()
        rows.append(f"{what} 3 {attempt} 0 {step} 1 1 {at_s}.0\n")
    path = folder / "steps.log"
    path.write_text("".join(rows))
    return StepLog(path)


PARAMS = {"x": 0.25}
FIRST = ("begun 1 0", "from 1 0", "step 1 0", "step 1 1", "saved 1 2", "step 1 2")


def test_only_what_was_not_saved_is_repeated(tmp_path: Path) -> None:
    log = a_log(tmp_path, *FIRST, "begun 2 0", "from 2 2", "step 2 2")
    (found,) = find_repeated(log.read())
    assert found == Repeated(
        trial=3, attempt=2, n_steps=1, seconds=STEP_S, n_saved_steps=0, after_s=1.0, at_s=7.0
    )


def test_saved_work_that_is_repeated_is_a_loss(tmp_path: Path) -> None:
    log = a_log(tmp_path, *FIRST, "begun 2 0", "from 2 0")
    (found,) = find_repeated(log.read())
    assert (found.n_steps, found.n_saved_steps) == (3, 2)


def test_nobody_goes_on_from_a_checkpoint_that_was_cut_off(tmp_path: Path) -> None:
    log = a_log(tmp_path, *FIRST, "begun 2 0", "from 2 0")
    (found,) = find_repeated(log.read(), torn={(3, 2)})
    assert found.n_saved_steps == 0


def test_who_paused_and_goes_on_has_had_no_accident(tmp_path: Path) -> None:
    paused = ("begun 1 0", "from 1 0", "step 1 0", "step 1 1", "saved 1 2", "left 1 1")
    log = a_log(tmp_path, *paused, "begun 2 0", "from 2 2", "step 2 2", "begun 3 0", "from 3 2")
    (found,) = find_repeated(log.read())
    assert (found.attempt, found.n_steps) == (3, 1), "only the second end was one"


def test_who_paused_and_lost_its_state_has_lost_something(tmp_path: Path) -> None:
    paused = ("begun 1 0", "from 1 0", "step 1 0", "step 1 1", "saved 1 2", "left 1 1")
    log = a_log(tmp_path, *paused, "begun 2 0", "from 2 0")
    (found,) = find_repeated(log.read())
    assert (found.n_steps, found.n_saved_steps) == (2, 2)


def test_a_trial_without_a_result_may_begin_again_once_it_has_finished(tmp_path: Path) -> None:
    finished = (*FIRST, "post 1 16")
    log = a_log(tmp_path, *finished, "begun 2 0", "from 2 0")
    (found,) = find_repeated(log.read())
    assert found.n_saved_steps == 0, "trial 3 returns nothing: its last report may be lost"


def test_a_process_of_another_pid_namespace_is_found_by_the_number_it_has_here(
    tmp_path: Path,
) -> None:
    here = os.stat("/proc/self/ns/pid").st_ino
    log = a_log(tmp_path)
    row = f"begun 3 1 0 0 {os.getpid()} {here} {time.time()}\n"
    (tmp_path / "steps.log").write_text(row)
    assert [line.pid for line in log.running()] == [os.getpid()]


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone may make a PID namespace")
def test_a_process_in_a_container_is_found(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    code = (
        "import os, sys, time; ns = os.stat('/proc/self/ns/pid').st_ino;"
        "open(sys.argv[1], 'w').write(f'begun 3 1 0 0 {os.getpid()} {ns} {time.time()}\\n');"
        "time.sleep(60)"
    )
    container = subprocess.Popen(
        [*in_container(), sys.executable, "-c", code, str(tmp_path / "steps.log")]
    )
    try:
        wait_until(lambda: bool(log.running()), "the process has written its line")
        (line,) = log.running()
        (child,) = psutil.Process(container.pid).children()
        assert line.pid == child.pid
    finally:
        container.kill()
        container.wait()


def a_trial(n_steps: int, *noted: float, wrong_at: int = -1) -> FrozenTrial:
    """One that was pruned after so many steps, with the values noted at its rungs."""
    values = {step: expected_value(PARAMS, step + 1) for step in range(n_steps)}
    values |= {wrong_at: 0.5} if wrong_at >= 0 else {}
    trial = create_trial(
        state=TrialState.PRUNED,
        params=PARAMS,
        distributions={"x": FloatDistribution(0.0, 1.0)},
        intermediate_values=values,
        system_attrs={f"{RUNG_KEY}{rung}": value for rung, value in enumerate(noted)},
    )
    trial.number = 3
    return trial


def after(step: int) -> float:
    return expected_value(PARAMS, step + 1)


@pytest.mark.parametrize(
    ("trial", "found"),
    [
        pytest.param(a_trial(2, after(1)), [], id="at-its-rung"),
        pytest.param(a_trial(5, after(1), after(4)), [], id="a-step-later"),
        pytest.param(a_trial(10, after(1), after(3), after(9)), [], id="at-the-third"),
        pytest.param(a_trial(1), ["before any rung"], id="no-rung"),
        pytest.param(a_trial(5, after(1)), ["rung 0 is its highest"], id="past-a-rung"),
        pytest.param(a_trial(2, after(0)), ["no value of steps"], id="of-an-earlier-step"),
        pytest.param(a_trial(4, after(1), 0.25), ["no value of steps"], id="of-no-step"),
    ],
)
def test_a_pruned_trial_stands_at_a_rung(trial: FrozenTrial, found: list[str]) -> None:
    findings = list(judge_pruned(trial, rungs_of("asha")))
    assert len(findings) == len(found)
    assert all(words in finding for words, finding in zip(found, findings, strict=True))


def test_who_was_killed_in_a_container_may_have_no_end() -> None:
    here = str(os.stat("/proc/self/ns/pid").st_ino)
    assert is_checkable({"pid_namespace": here})
    assert is_checkable(json.dumps({"pid_namespace": here}))
    assert not is_checkable({"pid_namespace": "1"})


def test_each_report_is_judged() -> None:
    assert list(judge_curve(a_trial(5))) == []
    (finding,) = judge_curve(a_trial(5, wrong_at=2))
    assert "at step 2" in finding


def test_log_is_read_as_it_grows(tmp_path: Path) -> None:
    log = a_log(tmp_path, *FIRST)
    assert len(log.read()) == len(FIRST)
    with (tmp_path / "steps.log").open("a") as file:
        file.write("step 3 1 0 3 1 1 9.0\nhalf a li")
    assert len(log.read()) == len(FIRST) + 1
    assert log.running() == [], "none of them is a process"


def test_value_depends_on_each_step_and_its_order() -> None:
    params = {"x": 0.5}
    in_order = list(range(N_STEPS))
    skipped, twice, swapped = in_order[1:], [0, *in_order], [1, 0, *in_order[2:]]
    values = {expected_value(params)}
    for steps in (skipped, twice, swapped):
        number = first_number(0.5)
        for step in steps:
            number = next_number(number, step, 1)
        values.add(number / (2**31 - 1))
    assert len(values) == 4
    assert expected_value(params) != expected_value({**params, "ranks": 2})


def a_fault(
    kind: str, at_s: float, *, victim: str = "dispatcher-0", study: str = "slots"
) -> Struck:
    return Struck(kind=kind, study=study, victim=victim, at_s=at_s, lasts_s=0.0)


@pytest.mark.parametrize(
    ("struck", "kind"),
    [
        pytest.param([], UNKNOWN, id="none"),
        pytest.param([a_fault("kill", 5.0)], "kill", id="dispatcher"),
        pytest.param([a_fault("kill", 5.0), a_fault("later", 6.0)], "later", id="last"),
        pytest.param(
            [a_fault("rank", 4.0, victim="trial 3 rank 0"), a_fault("kill", 6.0)], "rank", id="own"
        ),
        pytest.param([a_fault("rank", 4.0, victim="trial 31 rank 0")], UNKNOWN, id="other-trial"),
        pytest.param([a_fault("kill", 5.0, study="gpus")], UNKNOWN, id="other-study"),
        pytest.param([a_fault("kill", 0.5), a_fault("kill", 8.0)], UNKNOWN, id="other-time"),
        pytest.param([a_fault("guardian: SIGKILL", 5.0)], UNKNOWN, id="harmless"),
    ],
)
def test_fault_that_struck_between_two_attempts_is_blamed(struck: list[Struck], kind: str) -> None:
    repeated = Repeated(
        trial=3, attempt=2, n_steps=1, seconds=1.0, n_saved_steps=0, after_s=101.0, at_s=107.0
    )
    assert blame(struck, "slots", repeated, 100.0) == kind
