"""The commands of the page on clusters, as they stand there, on the engines that run here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.engines.conftest import steps_of
from tests.e2e.engines.test_kubernetes import write_study as write_kubernetes_study
from tests.e2e.engines.test_ray import write_study as write_ray_study
from tests.e2e.engines.test_slurm import write_study as write_slurm_study
from tests.e2e.engines.test_ssh import write_study as write_ssh_study
from tests.e2e.study_folder import REPOSITORY, StudyFolder, wait_until
from tests.engines.ray_cluster import TEST_LASTS_S, RayCluster
from tests.engines.ssh_server import SshServer

if TYPE_CHECKING:
    from tests.engines.kubernetes_cluster import Cluster

pytestmark = [pytest.mark.engines, pytest.mark.slow]


def commands_of(section: str) -> list[list[str]]:
    text = (REPOSITORY / "docs" / "clusters.md").read_text()
    (body,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    lines = "".join(re.findall(r"```sh\n(.*?)```", body, re.S)).splitlines()
    return [shlex.split(line, comments=True) for line in lines]


def follow(folder: StudyFolder, section: str, steps_log: Path) -> dict[str, str]:
    """Types the commands; the study has begun before the second look. Gives what each printed."""
    said: dict[str, str] = {}
    for words in commands_of(section):
        assert words[0] == "tuner"
        done = folder.tuner(*words[1:])
        assert done.code == 0, (words, done.text)
        said[words[1]] = done.out
        if words[1] == "submit" and "--dry-run" not in words:
            wait_until(lambda: (3, 3) in steps_of(steps_log), "four trials wait at step 3", 150)
    return said


def test_slurm(slurm_folder: StudyFolder, steps_log: Path) -> None:
    write_slurm_study(slurm_folder)
    said = follow(slurm_folder, "Slurm", steps_log)
    assert said["status"].count("allocation: slurm ") == 2
    assert "Asked to end" in said["scale"]
    assert "Asked to end" in said["cancel"]


def test_ssh(engine_folder: StudyFolder, ssh_server: SshServer, steps_log: Path) -> None:
    write_ssh_study(engine_folder, ssh_server)
    said = follow(engine_folder, "ssh", steps_log)
    assert said["status"].count("allocation: ssh ") == 2
    assert said["devices"].count(" running ") == 2
    assert "Asked to end" in said["scale"]
    assert "Asked to end" in said["cancel"]


def test_kubernetes(engine_folder: StudyFolder, cluster: Cluster, steps_log: Path) -> None:
    """On the stand-in of a cluster, whose pods are real dispatchers."""
    write_kubernetes_study(engine_folder)
    said = follow(engine_folder, "Kubernetes", steps_log)
    assert said["status"].count("allocation: kubernetes ") == 2
    assert said["devices"].count(" running ") == 2
    assert "Asked to end" in said["scale"]
    assert "Asked to end" in said["cancel"]
    wait_until(lambda: cluster.pods == [], "the pods are gone")
    assert cluster.jobs == {}


@pytest.mark.timeout(TEST_LASTS_S)
def test_ray(ray_folder: StudyFolder, ray_server: RayCluster, steps_log: Path) -> None:
    write_ray_study(ray_folder, ray_server, trials=6)
    said = follow(ray_folder, "Ray", steps_log)
    assert said["status"].count("allocation: ray ") == 3
    assert said["devices"].count(" running ") == 3
    assert "Asked to end" in said["scale"]
    assert "Asked to end" in said["cancel"]
