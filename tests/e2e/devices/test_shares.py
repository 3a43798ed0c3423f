"""Studies of several users on one machine, with real processes, claims and locks."""

from __future__ import annotations

import os
import shutil
import signal
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from tests.e2e.study_folder import StudyFolder, wait_until
from tests.nvml_stub import NvmlStub, StubGpu
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED

pytestmark = pytest.mark.slow
WAIT_S = 90.0
#: Saves each step, and says which steps it has done. It does further steps while a file is there.
STEPS = """
import time
from itertools import count
from pathlib import Path

import optuna

def train(trial):
    state = trial.load_checkpoint()
    for step in count(state["step"] + 1 if state else 0):
        if step >= N_STEPS and not Path("go-on-STUDY").exists():
            break
        with open("STUDY-%s.steps" % trial.number, "a") as file:
            file.write("%s\\n" % step)
        time.sleep(0.05)
        trial.save_checkpoint({"step": step}, step)
        trial.report(step, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return trial.params.x
"""
SLOW_IMPORT = """
time.sleep(1.0)
open("imported", "w").close()
"""
DEAF = """
import time
from pathlib import Path

def train(trial):
    while not Path("enough").exists():
        time.sleep(0.05)
    return trial.params.x
"""
GUEST = 4242
LEASES = """
    select d.device, l.leased_at, l.released_at
    from tuner_leases l join tuner_devices d on d.id = l.device_id
"""


def share(folder: StudyFolder, **rules: object) -> Path:
    """Divides the machine by rules."""
    claims = folder.path / "claims"
    file = folder.write("shares.yaml", yaml.safe_dump({"folder": str(claims), **rules}))
    folder.env["TUNER_SHARES"] = str(file)
    return claims


def a_study(folder: StudyFolder, name: str, *, n_steps: int, **keys: object) -> None:
    code = STEPS.replace("N_STEPS", str(n_steps)).replace("STUDY", name)
    folder.write(f"steps_{name}.py", code)
    folder.study(
        f"{name}.yaml",
        **{
            "study": name,
            "trial": {"function": f"steps_{name}:train"},
            "pruner": "none",
            **keys,
        },
    )


def steps_twice(folder: StudyFolder, name: str) -> list[str]:
    """Steps of a study that were done more than once."""
    twice = []
    for file in sorted(folder.path.glob(f"{name}-*.steps")):
        steps = file.read_text().split()
        twice += [f"{file.stem}: {step}" for step in sorted(set(steps)) if steps.count(step) > 1]
    return twice


def leases(folder: StudyFolder, name: str) -> list[tuple[str, datetime, datetime]]:
    rows = folder.rows(LEASES, database=f"{name}.db")
    return [
        (device, datetime.fromisoformat(begin), datetime.fromisoformat(end))
        for device, begin, end in rows
    ]


def check_no_device_had_two(folder: StudyFolder, *names: str) -> None:
    held = sorted((*lease, name) for name in names for lease in leases(folder, name))
    for one, other in pairwise(held):
        is_of_two = one[0] == other[0] and one[3] != other[3]
        assert not is_of_two or one[2] <= other[1], (one, other)


def test_a_study_gives_back_to_one_with_more_priority_and_goes_on_later(
    study_folder: StudyFolder,
) -> None:
    share(study_folder, cpu_slots=4, hold=0.5, grace="10s")
    a_study(study_folder, "low", n_steps=20, devices="cpu:4", priority=10)
    goes_on = study_folder.write("go-on-low", "")
    a_study(study_folder, "high", n_steps=10, devices="cpu:3", priority=90, budget={"trials": 3})
    high_file = study_folder.path / "steps_high.py"
    high_file.write_text(high_file.read_text() + SLOW_IMPORT)
    low = study_folder.start(file="low.yaml")
    wait_until(lambda: low.out.count("started on") == 4, "the study has all slots", WAIT_S)
    high = study_folder.start(file="high.yaml")
    ended = high.wait(WAIT_S)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "No device is free for this study" in ended.out
    goes_on.unlink()
    ended = low.wait(WAIT_S)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "given back to a study of your own with more priority" in ended.out
    low_attempts = study_folder.attempts("low.db")
    interrupted = [each for each in low_attempts if each.cause == "interrupted"]
    assert len(interrupted) >= 3
    assert sum(each.outcome == "completed" for each in low_attempts) == 4
    assert study_folder.states("low.db") == ["COMPLETE"] * 4
    assert steps_twice(study_folder, "low") == []
    check_no_device_had_two(study_folder, "low", "high")
    # No trial was interrupted for one that could not start yet.
    imported_s = (study_folder.path / "imported").stat().st_mtime
    first_given_back = min(end for _, _, end in leases(study_folder, "low"))
    assert first_given_back.replace(tzinfo=UTC).timestamp() > imported_s
    detail = "select detail from tuner_events where name = 'given_back'"
    assert "cpu:" in study_folder.rows(detail, database="low.db")[0][0]
    causes = {
        cause for (cause,) in study_folder.rows("select cause from tuner_idle", database="low.db")
    }
    assert "shared" in causes
    assert list((study_folder.path / "claims").glob("claim-*")) == []


def as_guest() -> list[str]:
    """Starts a program as another user, who may read all that the tests' user may."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs setpriv, and the right to become another user")
    caps = "+dac_override,+dac_read_search"
    return ["setpriv", f"--reuid={GUEST}", f"--inh-caps={caps}", f"--ambient-caps={caps}"]


def test_a_guarantee_is_met_on_eight_gpus_and_what_is_left_is_divided(
    gpu_folder: StudyFolder, nvml_stub: NvmlStub
) -> None:
    guest = as_guest()
    nvml_stub.write([StubGpu(uuid=f"GPU-{number:04}") for number in range(8)])
    share(gpu_folder, guaranteed={str(GUEST): 3}, hold="1h", grace="20s")
    a_study(gpu_folder, "lent", n_steps=20, devices="auto", budget={"trials": 10})
    a_study(gpu_folder, "owed", n_steps=20, devices="auto", budget={"trials": 3})
    go_on = [gpu_folder.write(f"go-on-{name}", "") for name in ("lent", "owed")]
    lent = gpu_folder.start(file="lent.yaml")
    wait_until(lambda: lent.out.count("started on") >= 8, "the study has all GPUs", WAIT_S)
    owed = gpu_folder.start(file="owed.yaml", prefix=guest)
    wait_until(lambda: owed.out.count("started on") >= 3, "the guarantee is met", WAIT_S)
    status = gpu_folder.tuner("status", "lent.yaml")
    assert f"waits: user id {GUEST} has 3 of 3 guaranteed, you have 5, your part is 5" in status.out
    waiting = next(
        number
        for (number,) in gpu_folder.rows(
            "select number from trials where state = 'WAITING'", database="lent.db"
        )
    )
    why = gpu_folder.tuner("why", "lent.yaml", str(waiting))
    assert f"  waits: user id {GUEST} has 3 of 3 guaranteed, you have 5" in why.out, why.text
    for file in go_on:
        file.unlink()
    ended = owed.wait(WAIT_S)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    ended = lent.wait(WAIT_S)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    # Not one more than the guarantee within `hold`.
    told = f"is given back to user id {GUEST}, who has"
    given_back = [line for line in ended.out.splitlines() if line.startswith("GPU ")]
    assert len([line for line in given_back if told in line]) == 3, ended.out
    assert len({device for device, _, _ in leases(gpu_folder, "owed")}) == 3
    assert gpu_folder.states("lent.db") == ["COMPLETE"] * 10
    assert steps_twice(gpu_folder, "lent") == []
    check_no_device_had_two(gpu_folder, "lent", "owed")


def test_a_tuner_that_is_killed_while_it_gives_back_keeps_nothing(
    study_folder: StudyFolder,
) -> None:
    claims = share(study_folder, cpu_slots=2, hold=0.5, grace="1h")
    study_folder.write("deaf.py", DEAF)
    for name, priority in (("low", 10), ("high", 90)):
        study_folder.study(
            f"{name}.yaml",
            study=name,
            trial={"function": "deaf:train"},
            priority=priority,
            budget={"trials": 2},
        )
    low = study_folder.start(file="low.yaml")
    wait_until(lambda: low.out.count("started on") == 2, "the study has all slots", WAIT_S)
    high = study_folder.start(file="high.yaml")
    wait_until(lambda: "is given back" in low.out, "it gives back", WAIT_S)
    assert "started on" not in high.out
    # Nor is a trial begun that could not run.
    assert study_folder.states("high.db") == []
    low.signal(signal.SIGKILL)
    wait_until(lambda: high.out.count("started on") == 2, "the other has all slots", WAIT_S)
    # Its devices are free as soon as their locks are; its claim goes with the next look at claims.
    wait_until(lambda: len(list(claims.glob("claim-*"))) == 1, "its claim is gone", WAIT_S)
    study_folder.write("enough", "")
    assert high.wait(WAIT_S).code == EXIT_BUDGET_REACHED


def test_rules_that_are_wrong_at_the_start_are_a_mistake_and_rubbish_beside_claims_is_none(
    study_folder: StudyFolder,
) -> None:
    claims = share(study_folder, cpu_slots=2)
    study_folder.study()
    good = (study_folder.path / "shares.yaml").read_text()
    study_folder.write("shares.yaml", "guaranteed: {ann: -1}")
    refused = study_folder.tune()
    assert refused.code == EXIT_BAD_INPUT
    assert "shares.yaml: guaranteed of ann is -1" in refused.err
    study_folder.write("shares.yaml", good)
    claims.mkdir()
    claims.chmod(0o1777)
    (claims / f"claim-{os.getuid()}-0-rubbish").symlink_to("/etc/shadow")
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "is no claim of a tuner: it is a symbolic link" in ended.out
    study_folder.env["SLURM_JOB_ID"] = "7"
    ended = study_folder.tune("--trials", "5")
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "no claim" not in ended.out


def test_the_priority_of_a_study_that_runs_is_changed(study_folder: StudyFolder) -> None:
    share(study_folder, cpu_slots=2, hold=0.5, grace="2s")
    study_folder.write("deaf.py", DEAF)
    for name in ("one", "other"):
        study_folder.study(
            f"{name}.yaml", study=name, trial={"function": "deaf:train"}, budget={"trials": 2}
        )
    refused = study_folder.tuner("set", "one.yaml", "priority=101")
    assert (refused.code, "priority is 101" in refused.err) == (EXIT_BAD_INPUT, True)
    one = study_folder.start(file="one.yaml")
    wait_until(lambda: one.out.count("started on") == 2, "the study has all slots", WAIT_S)
    changed = study_folder.tuner("set", "one.yaml", "priority=60")
    assert changed.code == 0, changed.text
    wait_until(lambda: "Changed: priority=60" in one.out, "it is told", WAIT_S)
    other = study_folder.start(file="other.yaml")
    wait_until(lambda: "No device is free" in other.out, "the other waits", WAIT_S)
    # It is known before it has had a device, and commands reach it.
    wait_until(
        lambda: "study other: waits for a device" in study_folder.tuner("status", "other.yaml").out,
        "its status is known",
        WAIT_S,
    )
    status = study_folder.tuner("status", "other.yaml")
    assert "waits: your other studies have 2, you have 2, your part is 2" in status.out
    assert "0 of 2 trials begun, 0 s" in status.out
    assert study_folder.tuner("set", "other.yaml", "priority=50").code == 0
    wait_until(lambda: "Changed: priority=50" in other.out, "it is told", WAIT_S)
    study_folder.tuner("set", "one.yaml", "priority=40")
    wait_until(lambda: other.out.count("started on") == 2, "the other has all slots", WAIT_S)
    # The rules break, go away and come back while both run.
    rules = study_folder.path / "shares.yaml"
    good = rules.read_text()
    rules.write_text("hold: {")
    wait_until(lambda: "that held before still hold" in one.out, "it says so", WAIT_S)
    rules.unlink()
    wait_until(lambda: "shares.yaml is gone" in one.out, "it says so", WAIT_S)
    rules.write_text(good + "max_per_user: 1\n")
    wait_until(lambda: "than max_per_user allows" in other.out, "they hold", WAIT_S)
    study_folder.write("enough", "")
    assert other.wait(WAIT_S).code == EXIT_BUDGET_REACHED
    assert one.wait(WAIT_S).code == EXIT_BUDGET_REACHED


def test_the_trial_that_has_saved_gives_its_device_back_and_one_that_never_saves_is_last(
    study_folder: StudyFolder,
) -> None:
    share(study_folder, cpu_slots=3, hold=0.5, grace="20s")
    a_study(study_folder, "low", n_steps=20, devices="cpu:3", priority=10, budget={"trials": 3})
    goes_on = study_folder.write("go-on-low", "")
    file = study_folder.path / "steps_low.py"
    only_one = "if trial.number == 1: trial.save_checkpoint"
    file.write_text(file.read_text().replace("trial.save_checkpoint", only_one))
    a_study(study_folder, "high", n_steps=10, devices="cpu:1", priority=90, budget={"trials": 1})
    low = study_folder.start(file="low.yaml")
    saved = study_folder.path / "low-1.steps"
    wait_until(lambda: saved.exists() and len(saved.read_text().split()) > 2, "it saves", WAIT_S)
    high = study_folder.start(file="high.yaml")
    assert high.wait(WAIT_S).code == EXIT_BUDGET_REACHED
    goes_on.unlink()
    ended = low.wait(WAIT_S)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "Trial 1 saves" in ended.out
    assert [len(study_folder.attempts("low.db"))] == [4]
    assert steps_twice(study_folder, "low") == []
