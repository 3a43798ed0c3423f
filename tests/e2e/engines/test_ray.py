"""Studies on a real Ray cluster of three nodes: submitted, cancelled, and with a lost node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.e2e.engines.conftest import setup_of, steps_of, write_forecast_study
from tests.e2e.study_folder import StudyFolder
from tests.e2e.study_folder import wait_until as wait_until_soon
from tests.engines.ray_cluster import TEST_LASTS_S, RayCluster
from tuner.errors import EXIT_BAD_INPUT

pytestmark = [pytest.mark.engines, pytest.mark.slow, pytest.mark.timeout(TEST_LASTS_S)]

# Three nodes start on as many processors as the other tests leave.
wait_until = partial(wait_until_soon, timeout_s=150)


def write_study(
    folder: StudyFolder,
    server: RayCluster,
    *,
    trials: int = 3,
    nodes: int = 2,
    idle: str = "5s",
    **ray: object,
) -> None:
    engine = {
        "name": "ray",
        "nodes": nodes,
        "idle": idle,
        # A dispatcher has the variables of its node, and not those of `tuner submit`.
        "setup": setup_of(folder),
        "ray": {"address": server.address, **ray},
    }
    write_forecast_study(folder, engine, trials=trials)


def looked_at(folder: StudyFolder) -> list[tuple[str, str]]:
    """Name and the rest of the line of each allocation."""
    shown = folder.tuner("devices", "--allocations", "study.yaml")
    assert shown.code == 0, shown.text
    return re.findall(r"^ray (\S+) +(.*)$", shown.out, re.M)


def nodes_of(folder: StudyFolder) -> list[str]:
    """Nodes of all allocations, by number; `-` where there is none."""
    return [line.split()[0] for _, line in looked_at(folder)]


def are_over(folder: StudyFolder) -> bool:
    return all(re.search(r"\b(ended|failed)\b", line) for _, line in looked_at(folder))


def test_a_study_runs_on_three_nodes_to_its_end(
    ray_folder: StudyFolder, ray_server: RayCluster, steps_log: Path
) -> None:
    write_study(ray_folder, ray_server, trials=6, nodes=1)
    done = ray_folder.tuner("submit", "study.yaml", "--on", "ray", "--nodes", "3")
    assert done.code == 0, done.text
    assert "Submitted to ray: tuner:small:0, tuner:small:1, tuner:small:2" in done.out
    wait_until(lambda: steps_of(steps_log).count((5, 3)) == 1, "six trials wait at step 3")
    again = ray_folder.tuner("submit", "study.yaml", "--nodes", "3")
    assert "has 3 allocations now: 3 running" in again.out
    assert set(nodes_of(ray_folder)) == {"n1", "n2", "n3"}
    steps_log.with_name("go").touch()
    wait_until(lambda: are_over(ray_folder), "all is over")
    assert [" ended " in f" {line} " for _, line in looked_at(ray_folder)] == [True] * 3
    assert sorted(steps_of(steps_log)) == [(trial, step) for trial in range(6) for step in range(6)]
    log = ray_folder.tuner("logs", "--allocation", "tuner:small:0").out
    assert "budget reached" in log


def test_trials_of_a_lost_node_run_on_another_one(
    ray_folder: StudyFolder, ray_server: RayCluster, steps_log: Path
) -> None:
    write_study(ray_folder, ray_server, trials=4)
    assert ray_folder.tuner("submit", "study.yaml").code == 0
    wait_until(lambda: steps_of(steps_log).count((3, 3)) == 1, "four trials wait at step 3")
    before = nodes_of(ray_folder)
    # Commands ask Ray through the head, which stays.
    number = 0 if before[0] != "n1" else 1
    ray_server.lose(before[number])
    (spare,) = {"n1", "n2", "n3"} - set(before)
    wait_until(lambda: nodes_of(ray_folder)[number] == spare, "Ray has started it on another node")
    steps_log.with_name("go").touch()
    wait_until(lambda: are_over(ray_folder), "all is over")
    # The dispatcher on the lost node was asked to end, and its trials had saved.
    assert sorted(steps_of(steps_log)) == [(trial, step) for trial in range(4) for step in range(6)]


@pytest.fixture
def frozen() -> Iterator[list[psutil.Process]]:
    """Processes that a test has stopped; they go on after it."""
    stopped: list[psutil.Process] = []
    yield stopped
    for each in stopped:
        with suppress(psutil.NoSuchProcess):
            each.resume()
    psutil.wait_procs(stopped, timeout=60)


# By day `test_trials_of_a_lost_node_run_on_another_one`, where connections break.
@pytest.mark.nightly
def test_a_frozen_node_holds_up_no_command_and_no_trial(
    ray_folder: StudyFolder,
    ray_server: RayCluster,
    steps_log: Path,
    frozen: list[psutil.Process],
) -> None:
    """Like a node whose cable is pulled: it does not answer, and no connection breaks."""
    # The allocation that Ray starts again waits until the trials of the frozen one are free.
    write_study(ray_folder, ray_server, trials=4, idle="2m")
    assert ray_folder.tuner("submit", "study.yaml").code == 0
    wait_until(lambda: steps_of(steps_log).count((3, 3)) == 1, "four trials wait at step 3")
    before = nodes_of(ray_folder)
    number = 0 if before[0] != "n1" else 1
    frozen += ray_server.freeze(before[number])
    # Each command has an answer, whether Ray knows of it yet or not.
    assert len(nodes_of(ray_folder)) == 2
    again = ray_folder.tuner("submit", "study.yaml")
    assert again.code == 0, again.text
    assert "has 2 allocations now: " in again.out
    assert "Submitted" not in again.out
    (spare,) = {"n1", "n2", "n3"} - set(before)
    wait_until(lambda: nodes_of(ray_folder)[number] == spare, "Ray has started it on another node")
    # Frozen on this very machine, it counts as alive; it receives the stop when it continues.
    for each in frozen:
        with suppress(psutil.NoSuchProcess):
            each.resume()
    steps_log.with_name("go").touch()
    wait_until(lambda: are_over(ray_folder), "all is over")
    assert sorted(steps_of(steps_log)) == [(trial, step) for trial in range(4) for step in range(6)]


def test_a_dry_run_is_a_program_that_submits_and_cancelling_lets_trials_save(
    ray_folder: StudyFolder, ray_server: RayCluster, steps_log: Path
) -> None:
    write_study(ray_folder, ray_server, trials=4)
    shown = ray_folder.tuner("submit", "study.yaml", "--dry-run")
    assert shown.code == 0, shown.text
    program = ray_folder.write("submit.py", shown.out)
    assert ray_folder.python(str(program)).out == "tuner:small:0\ntuner:small:1\n"
    wait_until(lambda: steps_of(steps_log).count((3, 3)) == 1, "four trials wait at step 3")
    done = ray_folder.tuner("cancel", "study.yaml")
    assert "Asked to end, trials save first: tuner:small:0, tuner:small:1" in done.out, done.text
    wait_until(lambda: are_over(ray_folder), "all is over")
    steps_log.with_name("go").touch()
    assert ray_folder.tuner("submit", "study.yaml").code == 0
    wait_until(lambda: are_over(ray_folder), "all is over again")
    assert sorted(steps_of(steps_log)) == [(trial, step) for trial in range(4) for step in range(6)]


def test_what_the_cluster_has_no_room_for_is_refused(
    ray_folder: StudyFolder, ray_server: RayCluster
) -> None:
    write_study(ray_folder, ray_server, nodes=4)
    done = ray_folder.tuner("submit", "study.yaml")
    assert done.code == EXIT_BAD_INPUT
    assert "4 nodes with 1 CPU are asked for, but the cluster of 3 nodes has room for 3" in done.err
    write_study(ray_folder, ray_server, python="/no/such/python")
    done = ray_folder.tuner("submit", "study.yaml")
    assert done.code == EXIT_BAD_INPUT
    assert "the tuner cannot run there: " in done.err
    assert "/no/such/python" in done.err
