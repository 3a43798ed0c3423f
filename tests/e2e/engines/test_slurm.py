"""Studies on a real Slurm: submitted, preempted, scaled, ended."""

from __future__ import annotations

import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.engines.conftest import module_setup, steps_of, write_forecast_study
from tests.e2e.study_folder import StudyFolder
from tests.e2e.study_folder import wait_until as wait_until_soon
from tests.engines.slurm_cluster import SlurmCluster
from tuner.errors import EXIT_BAD_INPUT

pytestmark = [pytest.mark.engines, pytest.mark.slow, pytest.mark.timeout(400)]

# Dispatchers start several times, on as many processors as the other tests leave.
wait_until = partial(wait_until_soon, timeout_s=150)
ENGINE = {"name": "slurm", "nodes": 2, "devices": 4, "time": "10m", "idle": "3s"}


def write_study(folder: StudyFolder, *, trials: int = 4, **engine: object) -> None:
    write_forecast_study(folder, ENGINE | engine, trials=trials)


def submit(folder: StudyFolder, *words: str) -> list[str]:
    """Names of the allocations that were submitted."""
    done = folder.tuner("submit", "study.yaml", *words)
    assert done.code == 0, done.text
    found = re.search(r"Submitted to slurm: (.*)", done.out)
    return found[1].split(", ") if found else []


def test_a_study_runs_on_two_nodes_to_its_end(
    slurm_folder: StudyFolder, slurm_server: SlurmCluster, steps_log: Path
) -> None:
    write_study(slurm_folder)
    names = submit(slurm_folder)
    assert len(names) == 2
    assert submit(slurm_folder) == []  # Typed twice is once.
    wait_until(lambda: steps_of(steps_log).count((3, 3)) == 1, "four trials wait at step 3")
    # What was submitted runs, whatever the file says by now.
    slurm_folder.write("forecast.py", "raise SystemExit('changed')")
    shown = slurm_folder.tuner("status", "study.yaml").out
    lines = re.findall(
        r"^allocation: slurm (\S+) \S+ running 0:0\d of 0:10, 4 GPUs, trials", shown, re.M
    )
    assert sorted(lines) == names
    comments = ("squeue", "--noheader", "--array", "--state=RUNNING", "--format=%j %k")
    wait_until(
        lambda: slurm_server.run(*comments).splitlines() == ["tuner:small 0/4 trials"] * 2,
        "squeue shows the progress",
    )
    (steps_log.with_name("go")).touch()
    wait_until(lambda: set(slurm_server.states().values()) == {"COMPLETED"}, "all is over")
    assert sorted(steps_of(steps_log)) == [(trial, step) for trial in range(4) for step in range(6)]
    nodes = {line.split()[2] for line in steps_log.read_text().splitlines()}
    assert nodes == {"n1", "n2"}
    assert "budget reached" in slurm_folder.tuner("logs", "--allocation", names[0]).out
    table = slurm_folder.tuner("devices", "--allocations", "study.yaml").out
    assert len(re.findall(rf"^slurm (?:{'|'.join(names)}) .*\bended\b", table, re.M)) == 2


def test_preempted_trials_continue_without_a_step_done_twice(
    slurm_folder: StudyFolder, slurm_server: SlurmCluster, steps_log: Path
) -> None:
    write_study(slurm_folder, trials=2, nodes=1)
    (name,) = submit(slurm_folder)
    wait_until(lambda: steps_of(steps_log).count((1, 3)) == 1, "both trials wait at step 3")
    urgent = ["--partition=high", "--nodes=2", "--gpus-per-node=4", "--output=/dev/null"]
    slurm_server.run("sbatch", *urgent, "--wrap=sleep 2")
    wait_until(lambda: slurm_server.states()[name] == "PENDING", "it is preempted")
    assert "tuner:" in slurm_server.run("squeue", "-h", "-r", "-o", "%j")
    steps_log.with_name("go").touch()
    wait_until(lambda: slurm_server.states().get(name) == "COMPLETED", "it has run again")
    assert sorted(steps_of(steps_log)) == [(trial, step) for trial in range(2) for step in range(6)]
    assert slurm_folder.tuner("status", "study.yaml").code == 0


def test_trials_of_an_allocation_at_its_time_limit_continue_in_the_next(
    slurm_folder: StudyFolder, slurm_server: SlurmCluster, steps_log: Path
) -> None:
    write_study(slurm_folder, trials=2, nodes=1)
    (name,) = submit(slurm_folder)
    wait_until(lambda: steps_of(steps_log).count((1, 3)) == 1, "both trials wait at step 3")
    # Ten minutes would last as long. Slurm looks at limits twice a minute.
    slurm_server.limit(name, left_s=45)
    wait_until(lambda: slurm_server.restarts(name) == 1, "its time is over")
    slurm_server.limit(name, left_s=600)
    assert sorted(steps_of(steps_log)) == [(trial, step) for trial in range(2) for step in range(4)]
    steps_log.with_name("go").touch()
    wait_until(lambda: slurm_server.states().get(name) == "COMPLETED", "it has run again")
    assert sorted(steps_of(steps_log)) == [(trial, step) for trial in range(2) for step in range(6)]
    assert slurm_folder.tuner("status", "study.yaml").code == 0


def test_an_allocation_with_nothing_to_do_ends_itself(
    slurm_folder: StudyFolder, slurm_server: SlurmCluster, steps_log: Path
) -> None:
    write_study(slurm_folder, trials=2)
    first, second = submit(slurm_folder)
    wait_until(lambda: steps_of(steps_log).count((1, 3)) == 1, "both trials wait at step 3")
    # Each node has room for two trials: one of the two has none, or each has one.
    if len({line.split()[2] for line in steps_log.read_text().splitlines()}) == 1:
        wait_until(lambda: "COMPLETED" in slurm_server.states().values(), "one was idle")
    steps_log.with_name("go").touch()
    wait_until(lambda: set(slurm_server.states().values()) == {"COMPLETED"}, "all is over")
    assert {first, second} == set(slurm_server.states())


def test_setup_loads_environment_modules(
    slurm_folder: StudyFolder, slurm_server: SlurmCluster, steps_log: Path
) -> None:
    steps_log.with_name("go").touch()
    write_study(slurm_folder, trials=2, nodes=1, setup=module_setup(slurm_folder))
    (name,) = submit(slurm_folder)
    wait_until(lambda: slurm_server.states().get(name) in ("COMPLETED", "FAILED"), "it is over")
    log = slurm_folder.tuner("logs", "--allocation", name).out
    assert sorted(steps_of(steps_log)) == [
        (trial, step) for trial in range(2) for step in range(6)
    ], log


def test_scaling_down_lets_trials_save_and_cancelling_ends_all(
    slurm_folder: StudyFolder, slurm_server: SlurmCluster, steps_log: Path
) -> None:
    write_study(slurm_folder)
    names = submit(slurm_folder, "--nodes", "3")
    wait_until(lambda: steps_of(steps_log).count((3, 3)) == 1, "four trials wait at step 3")
    assert sorted(slurm_server.states().values()) == ["PENDING", "RUNNING", "RUNNING"]
    done = slurm_folder.tuner("scale", "study.yaml", "1")
    assert done.code == 0, done.text
    assert names[2] in done.out
    wait_until(
        lambda: sorted(slurm_server.states().values()) == ["CANCELLED", "COMPLETED", "RUNNING"],
        "one is left",
    )
    assert slurm_folder.tuner("cancel", "study.yaml").code == 0
    wait_until(lambda: "RUNNING" not in slurm_server.states().values(), "none is left")
    assert sorted(steps_of(steps_log)) == [(trial, step) for trial in range(4) for step in range(4)]


def test_a_dry_run_prints_a_script_that_slurm_takes(
    slurm_folder: StudyFolder, slurm_server: SlurmCluster
) -> None:
    write_study(slurm_folder, setup=["export GREETING=hello"])
    done = slurm_folder.tuner("submit", "study.yaml", "--dry-run")
    assert done.code == 0, done.text
    assert "export GREETING=hello\n" in done.out
    assert "#SBATCH --array=0-1\n" in done.out
    script = slurm_folder.write("job.sh", done.out)
    slurm_server.run("sbatch", "--test-only", str(script))
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert slurm_server.states() == {}


def test_account_and_qos_of_the_file_are_those_of_the_job(
    slurm_folder: StudyFolder, slurm_server: SlurmCluster
) -> None:
    write_study(slurm_folder, slurm={"account": "vision", "qos": "normal", "partition": "high"})
    done = slurm_folder.tuner("submit", "study.yaml", "--dry-run")
    assert re.search(r"^#SBATCH --qos=\W?normal\W?$", done.out, re.M)
    script = slurm_folder.write("job.sh", done.out)
    slurm_server.run("sbatch", "--hold", str(script))
    seen = slurm_server.run("squeue", "--noheader", "--format=%a %P")
    assert set(seen.splitlines()) == {"vision high"}
    slurm_server.run("scancel", "--state=PENDING")


def test_what_slurm_refuses_is_told_and_nothing_is_submitted(
    slurm_folder: StudyFolder, slurm_server: SlurmCluster
) -> None:
    write_study(slurm_folder, slurm={"partition": "nowhere"})
    done = slurm_folder.tuner("submit", "study.yaml")
    assert done.code == EXIT_BAD_INPUT
    assert "invalid partition specified: nowhere" in done.err
    write_study(slurm_folder, devices=16)
    assert slurm_folder.tuner("submit", "study.yaml").code == EXIT_BAD_INPUT
    write_study(slurm_folder, time="2h")
    done = slurm_folder.tuner("submit", "study.yaml")
    assert done.code == EXIT_BAD_INPUT
    assert "engine.time is 120m, but the partition allows less (low 60m)" in done.err
    assert slurm_server.states() == {}


def test_a_study_with_more_trials_than_devices_asks_for_another_node(
    slurm_folder: StudyFolder, slurm_server: SlurmCluster, steps_log: Path
) -> None:
    write_study(slurm_folder, trials=4, nodes="1..2")
    assert len(submit(slurm_folder, "--adapt")) == 1
    wait_until(lambda: len(slurm_server.states()) == 2, "another node is asked for")
    wait_until(lambda: steps_of(steps_log).count((3, 3)) == 1, "four trials wait at step 3")
    nodes = {line.split()[2] for line in steps_log.read_text().splitlines()}
    assert nodes == {"n1", "n2"}
    steps_log.with_name("go").touch()
    wait_until(lambda: set(slurm_server.states().values()) == {"COMPLETED"}, "all is over")
    assert sorted(steps_of(steps_log)) == [(trial, step) for trial in range(4) for step in range(6)]
