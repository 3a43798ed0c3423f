"""Studies on the stand-in of a Kubernetes cluster, whose pods are real dispatchers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.e2e.engines.conftest import steps_of, write_forecast_study
from tests.e2e.study_folder import StudyFolder, wait_until
from tuner.errors import EXIT_BAD_INPUT

if TYPE_CHECKING:
    from tests.engines.kubernetes_cluster import Cluster

pytestmark = [pytest.mark.engines, pytest.mark.slow]


def write_study(folder: StudyFolder, **kubernetes: object) -> None:
    engine = {"name": "kubernetes", "nodes": 2, "idle": "3s"}
    write_forecast_study(folder, engine | {"kubernetes": {"image": "train:1"} | kubernetes})


def test_a_study_runs_in_the_image_and_goes_on_elsewhere_when_a_node_is_taken_back(
    engine_folder: StudyFolder, cluster: Cluster, steps_log: Path
) -> None:
    write_study(engine_folder)
    shown = engine_folder.tuner("submit", "study.yaml", "--dry-run")
    (job, _) = yaml.safe_load_all(shown.out)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"][:4] == ["python", "-m", "tuner.run", "study.yaml"]

    done = engine_folder.tuner("submit", "study.yaml")
    assert done.code == 0, done.text
    wait_until(lambda: steps_of(steps_log).count((3, 3)) == 1, "four trials wait at step 3")
    status = engine_folder.tuner("status", "study.yaml").out
    assert len(re.findall(r"^allocation: kubernetes tuner-\S+ node-\d running", status, re.M)) == 2

    cluster.evict(next(iter(cluster.pods)))
    wait_until(lambda: "exit code 75" in _events(cluster), "the pod has saved and left")
    steps_log.with_name("go").touch()
    wait_until(lambda: cluster.ends() == ["Complete", "Complete"], "both Jobs have ended")
    assert sorted(steps_of(steps_log)) == [(trial, step) for trial in range(4) for step in range(6)]


def test_nothing_is_submitted_where_the_cluster_refuses(
    engine_folder: StudyFolder, cluster: Cluster
) -> None:
    write_study(engine_folder)
    cluster.forbidden.add(("create", "jobs"))
    refused = engine_folder.tuner("submit", "study.yaml")
    assert refused.code == EXIT_BAD_INPUT
    assert 'User "ann" cannot create resource "jobs"' in refused.err
    cluster.forbidden.clear()
    cluster.max_jobs = 1
    refused = engine_folder.tuner("submit", "study.yaml")
    assert refused.code == EXIT_BAD_INPUT
    assert "exceeded quota" in refused.err
    assert "Ask for fewer nodes" in refused.err
    assert cluster.jobs == {}
    table = engine_folder.tuner("devices", "--allocations", "study.yaml").out
    assert "has no allocations" in table
    done = engine_folder.tuner("submit", "study.yaml", "--nodes", "1")
    assert done.code == 0, done.text
    assert list(cluster.jobs)
    assert engine_folder.tuner("cancel", "study.yaml").code == 0


def test_an_image_that_cannot_be_pulled_is_told_with_what_to_do(
    engine_folder: StudyFolder, cluster: Cluster
) -> None:
    write_study(engine_folder, image="train:2")
    assert engine_folder.tuner("submit", "study.yaml").code == 0
    wait_until(
        lambda: "ImagePullBackOff" in engine_folder.tuner("status", "study.yaml").out,
        "the cluster has tried",
    )
    line = engine_folder.tuner("status", "study.yaml").out
    assert 'Back-off pulling image "train:2". Correct engine.kubernetes.image' in line
    assert engine_folder.tuner("cancel", "study.yaml").code == 0
    assert cluster.jobs == {}


def _events(cluster: Cluster) -> str:
    return "\n".join(each["message"] for each in cluster.events)
