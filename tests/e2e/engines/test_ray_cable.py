"""A Ray cluster whose nodes have networks of their own, one of which is cut off."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.chaos.nodes.network import why_not
from tests.e2e.engines.conftest import STEPS, setup_of, steps_of, write_forecast_study
from tests.e2e.study_folder import Ended, StudyFolder
from tests.e2e.study_folder import wait_until as wait_until_soon
from tests.engines.ray_machines import MACHINE_SETTINGS, RayMachines, run_ray_machines
from tuner.errors import EXIT_BAD_INPUT

# By day: tests/e2e/engines/test_ray.py, where connections of a lost node break.
pytestmark = [pytest.mark.engines, pytest.mark.nightly, pytest.mark.timeout(900)]

N_TRIALS = 6
# Ray itself ends a node that has not reached its head for a minute.
wait_until = partial(wait_until_soon, timeout_s=240)


@pytest.fixture
def folder() -> Iterator[StudyFolder]:
    """Outside of /tmp, which `tuner submit` takes for a folder of each machine's own."""
    if missing := why_not() or ("" if find_spec("ray") else "Ray is not installed"):
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    with tempfile.TemporaryDirectory(prefix=".tuner-ray-", dir=Path.home()) as name:
        path = Path(name) / "user"
        path.mkdir()
        folder = StudyFolder(path=path, env=dict(MACHINE_SETTINGS))
        folder.write("forecast.py", STEPS)
        subprocess.run(["git", "init", "-q", str(path)], check=True)
        yield folder
        folder.end_all()


@pytest.fixture
def machines(folder: StudyFolder) -> Iterator[RayMachines]:
    with run_ray_machines(folder) as machines:
        yield machines


@pytest.fixture
def steps_log(folder: StudyFolder, machines: RayMachines) -> Path:
    """Lines of trial and step. The study of three allocations is in the folder."""
    log = folder.path.with_name("steps")
    folder.env |= {"STORAGE": machines.server.url_on_network, "STEPS_LOG": str(log)}
    engine = {"name": "ray", "nodes": 3, "idle": "2m", "setup": setup_of(folder)}
    write_forecast_study(folder, engine | {"ray": {"address": machines.address}}, trials=N_TRIALS)
    return log


def on_head(folder: StudyFolder, machines: RayMachines, *words: str) -> Ended:
    """A command's answer. Without one, `Running.wait` raises TimeoutExpired."""
    return folder.tuner(*words, prefix=machines.spaces["n1"].enter(folder.path))


def test_a_node_that_does_not_see_the_folder_is_named(
    folder: StudyFolder, machines: RayMachines, steps_log: Path
) -> None:
    hide = ["mount", "-t", "tmpfs", "none", str(folder.path)]
    subprocess.run([*machines.spaces["n3"].enter(Path("/")), *hide], check=True)
    refused = on_head(folder, machines, "submit", "study.yaml")
    assert refused.code == EXIT_BAD_INPUT
    where = "Node n3: the tuner cannot run there: it does not see "
    assert f"{where}{folder.path}/tuner-files/small" in refused.err
    assert "no study in it yet" in on_head(folder, machines, "status", "study.yaml").err


def test_a_pulled_cable_holds_up_no_command_and_no_trial(
    folder: StudyFolder, machines: RayMachines, steps_log: Path
) -> None:
    def tuner(*words: str) -> Ended:
        done = on_head(folder, machines, *words)
        assert done.code == 0, done.text
        return done

    def allocations() -> list[tuple[str, str]]:
        """Node and the rest of the line of each allocation, by number."""
        shown = tuner("devices", "--allocations", "study.yaml").out
        return re.findall(r"^ray \S+ +(\S+) +(.*)$", shown, re.M)

    tuner("submit", "study.yaml")
    wait_until(lambda: len(set(steps_of(steps_log))) == 4 * N_TRIALS, "trials wait at step 3")
    assert all(machines.has_dispatcher(name) for name in machines.spaces)
    number = [node for node, _ in allocations()].index("n2")
    machines.pull_cable("n2")
    # Ray does not know of it yet, and knows of it.
    for _ in range(2):
        assert "has 3 allocations now: " in tuner("submit", "study.yaml").out
        wait_until(lambda: " is lost; Ray starts" in allocations()[number][1], "Ray has noticed")
    # The dispatcher behind the cable lets its trials save and ends, while others take them over.
    wait_until(lambda: not machines.has_dispatcher("n2"), "nothing of the tuner runs there")
    steps_log.with_name("go").touch()
    wait_until(
        lambda: all(re.search(r"\b(ended|failed)\b", line) for _, line in allocations()),
        "all is over",
    )
    done = sorted(steps_of(steps_log))
    assert done == [(trial, step) for trial in range(N_TRIALS) for step in range(6)]
    assert f"{N_TRIALS} of {N_TRIALS} trials" in tuner("status", "study.yaml").out
