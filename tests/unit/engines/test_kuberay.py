"""The manifest for KubeRay: a RayJob, and the ConfigMap with its program."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.unit.engines.test_ray import an_order
from tests.unit.engines.test_submission import folder, refusal, shared
from tuner.config.sections.engine import EngineConfig
from tuner.engines.port import AllocationOrder
from tuner.engines.ray.engine import RayEngine
from tuner.engines.ray.kuberay import ray_job_name
from tuner.errors import EngineError

__all__ = ["folder"]

KUBERNETES = {
    "image": "train@sha256:1",
    "namespace": "vision",
    "queue": "vision-queue",
    "priority": "normal",
    "secret": "tuner-db",
    "secret_folder": "/home/me/.tuner",
    "template": "pod.yaml",
}
POD = """
spec:
  imagePullSecrets: [{name: registry}]
  volumes: [{name: data, hostPath: {path: /data}}]
  containers:
    - name: tuner
      env: [{name: NCCL_DEBUG, value: WARN}]
      volumeMounts: [{name: data, mountPath: /data}]
"""


def an_order_in_image(folder: Path) -> AllocationOrder:
    (folder / "pod.yaml").write_text(POD)
    words = ("python", "-m", "tuner.run", "study.yaml", "--engine", "ray", "--study", "digits")
    return an_order(
        folder, command=words, devices=8, cpus=16, memory_bytes=2**36, setup=("export A=b",)
    )


def documents(folder: Path, n_nodes: int = 2, **kubernetes: object) -> tuple[Any, Any]:
    config = {"name": "ray", "ray": {"kuberay": True}, "kubernetes": KUBERNETES | kubernetes}
    engine = RayEngine(EngineConfig.model_validate(config))
    text = engine.render(an_order_in_image(folder), range(n_nodes))
    program, job = yaml.safe_load_all(text)
    return program, job


def test_cluster_has_a_pod_for_each_allocation(tmp_path: Path) -> None:
    program, job = documents(tmp_path, 3)
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "vision-queue"
    assert job["spec"]["shutdownAfterJobFinishes"]
    cluster = job["spec"]["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    assert {workers[key] for key in ("replicas", "minReplicas", "maxReplicas")} == {3}
    (worker,) = workers["template"]["spec"]["containers"]
    wanted = {"nvidia.com/gpu": "8", "cpu": "16", "memory": str(2**36)}
    assert worker["resources"] == {"requests": wanted, "limits": wanted}
    assert worker["env"] == [{"name": "NCCL_DEBUG", "value": "WARN"}]
    mounts = {each["name"]: each["mountPath"] for each in worker["volumeMounts"]}
    assert mounts == {"tuner-secret": "/home/me/.tuner", "data": "/data"}
    # No allocation goes to the head, which has no GPU.
    head = cluster["headGroupSpec"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    (container,) = head["template"]["spec"]["containers"]
    assert container["image"] == "train@sha256:1"
    volumes = {each["name"]: each for each in head["template"]["spec"]["volumes"]}
    assert volumes["tuner-program"]["configMap"]["name"] == program["metadata"]["name"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert job["spec"]["entrypoint"] == f"python {mounts['tuner-program']}/submit.py"


def test_program_needs_no_tuner_and_nothing_of_this_machine(tmp_path: Path) -> None:
    program, _ = documents(tmp_path)
    (text,) = program["data"].values()
    compile(text, "submit.py", "exec")
    assert "import tuner" not in text
    assert str(tmp_path) not in text
    # The pods are sized by their limits; an actor that asks for all memory of one could wait.
    assert "'memory': None" in text
    assert "--engine ray" in text


def test_kubernetes_takes_the_pods_and_the_config_map(tmp_path: Path) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    program, job = documents(tmp_path)
    kubernetes_validate.validate(program, "1.31", strict=True)
    cluster = job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = {"apiVersion": "v1", "kind": "Pod", **group["template"]}
        pod["metadata"] = {"name": "a", **pod["metadata"]}
        kubernetes_validate.validate(pod, "1.31", strict=True)


@pytest.mark.skipif(
    "KUBERAY_CRD" not in os.environ, reason="names ray.io_rayjobs.yaml of KubeRay's repository"
)
def test_schema_of_kuberay_takes_the_job(tmp_path: Path) -> None:
    crd = yaml.safe_load(Path(os.environ["KUBERAY_CRD"]).read_text())
    (schema,) = [each["schema"] for each in crd["spec"]["versions"] if each["name"] == "v1"]
    _, job = documents(tmp_path)
    jsonschema.validate(job, strict(schema["openAPIV3Schema"]))


def strict(schema: Any) -> Any:
    """With unknown keys refused, where the schema has any."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: strict(value) for key, value in schema.items()}
    is_object = schema.get("type") == "object" and isinstance(schema.get("properties"), dict)
    if is_object and set(schema["properties"]) != {"apiVersion", "kind", "metadata"}:
        found["additionalProperties"] = False
    return found


@pytest.mark.parametrize("study", ["digits", "Digits MLP", "x" * 200, "ünïcode", "a/b:c", "-"])
def test_kuberay_takes_the_name_of_each_study(study: str) -> None:
    name = ray_job_name(study)
    assert len(name) <= 47
    assert name.startswith("tuner-")
    assert not name.endswith("-")
    others = {"digits", "Digits mlp", "x" * 201} - {study}
    assert name not in {ray_job_name(other) for other in others}


def test_missing_image_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"engine\.kubernetes\.image is missing"):
        documents(tmp_path, image=None)


def test_submit_says_how_the_manifest_is_applied(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared(monkeypatch)
    said = refusal(folder, engine="{name: ray, ray: {kuberay: true}, kubernetes: {image: a}}")
    assert "tuner submit study.yaml --on ray --dry-run | kubectl apply -f -" in said
