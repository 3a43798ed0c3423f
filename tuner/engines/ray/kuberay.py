"""A RayJob for KubeRay: a cluster of its own with one pod for each allocation, for one study.

The Python program of a dry run is in a ConfigMap, and the job runs it on the head. It makes the
actors and waits for them, because KubeRay takes the cluster away when the job ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from tuner.config.sections.engine import EngineConfig
from tuner.engines.kubernetes.manifest import CONTAINER, resources, secret_files
from tuner.engines.kubernetes.names import QUEUE_LABEL, STUDY_ANNOTATION, STUDY_LABEL, study_label
from tuner.engines.kubernetes.template import Manifest, merge, read_template
from tuner.engines.port import AllocationOrder
from tuner.engines.ray.script import job_program
from tuner.errors import EngineError

#: Output of the pod's first process, which `kubectl logs` shows.
POD_OUTPUT = "/proc/1/fd/1"
_PROGRAM_FOLDER = "/etc/tuner"
_PROGRAM_NAME = "submit.py"
#: KubeRay refuses a longer name.
_LONGEST = 47
#: A lost head ends the cluster; KubeRay then makes another one, so often.
_BACKOFF_LIMIT = 3
#: Ray's minimum is 75 MiB. Allocations store nothing there, and trials need the shared memory.
_OBJECT_STORE = {"object-store-memory": str(100 * 2**20)}
#: It runs no allocation, only Ray's own services and the program.
_HEAD_RESOURCES = {"cpu": "1", "memory": "4Gi"}


def ray_job_name(study: str) -> str:
    """Name of a study's RayJob and of the ConfigMap with its program."""
    name = f"tuner-{study_label(study)}"
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256(study.encode()).hexdigest()[:8]
    return f"{name[: _LONGEST - 9].rstrip('-')}-{digest}"


def render_ray_job(
    config: EngineConfig, order: AllocationOrder, orders: Sequence[Mapping[str, object]]
) -> str:
    """The ConfigMap and the RayJob as YAML documents, for `kubectl apply -f`.

    Args:
        config: `engine` of the study file; settings of pods are in `engine.kubernetes`.
        order: The resources of each allocation.
        orders: The arguments of each actor.

    Raises:
        EngineError: If there is no image, or the template cannot be read.
    """
    if not config.kubernetes.image:
        raise EngineError(
            "engine.kubernetes.image is missing, but KubeRay needs an image with Ray, the tuner "
            "and your code. Name it by digest: "
            "kubernetes: {image: registry.example/me/train@sha256:...}"
        )
    metadata = _metadata(config, order.study)
    program = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {_PROGRAM_NAME: job_program(orders)},
    }
    queue = {QUEUE_LABEL: config.kubernetes.queue} if config.kubernetes.queue else {}
    job = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": metadata | {"labels": {STUDY_LABEL: study_label(order.study)} | queue},
        "spec": {
            "entrypoint": f"{config.ray.python or 'python'} {_PROGRAM_FOLDER}/{_PROGRAM_NAME}",
            "shutdownAfterJobFinishes": True,
            "backoffLimit": _BACKOFF_LIMIT,
            "rayClusterSpec": _cluster(config, order, len(orders)),
        },
    }
    documents = [
        yaml.safe_dump(each, sort_keys=False, allow_unicode=True) for each in (program, job)
    ]
    return "---\n".join(documents)


def _metadata(config: EngineConfig, study: str) -> Manifest:
    namespace = config.kubernetes.namespace
    return {
        "name": ray_job_name(study),
        **({"namespace": namespace} if namespace else {}),
        "labels": {STUDY_LABEL: study_label(study)},
        "annotations": {STUDY_ANNOTATION: study},
    }


def _cluster(config: EngineConfig, order: AllocationOrder, n_nodes: int) -> Manifest:
    """Workers without an allocation would be idle: as many as there are allocations."""
    program: Manifest = {
        "name": "tuner-program",
        "configMap": {"name": ray_job_name(order.study)},
    }
    mount: Manifest = {"name": "tuner-program", "mountPath": _PROGRAM_FOLDER, "readOnly": True}
    head: Manifest = {"requests": dict(_HEAD_RESOURCES), "limits": dict(_HEAD_RESOURCES)}
    return {
        "headGroupSpec": {
            "rayStartParams": {"num-cpus": "0", "num-gpus": "0", **_OBJECT_STORE},
            "template": _pod(config, order, head, volumes=[program], mounts=[mount]),
        },
        "workerGroupSpecs": [
            {
                "groupName": "nodes",
                "replicas": n_nodes,
                "minReplicas": n_nodes,
                "maxReplicas": n_nodes,
                "rayStartParams": dict(_OBJECT_STORE),
                "template": _pod(config, order, resources(order), volumes=[], mounts=[]),
            }
        ],
    }


def _pod(
    config: EngineConfig,
    order: AllocationOrder,
    wanted: Manifest,
    *,
    volumes: list[Manifest],
    mounts: list[Manifest],
) -> object:
    """A pod with the user's template below ours; KubeRay adds the command and `/dev/shm`."""
    settings = config.kubernetes
    secret_volumes, secret_mounts = secret_files(settings)
    spec: Manifest = {
        "automountServiceAccountToken": False,
        "volumes": [*volumes, *secret_volumes],
        "containers": [
            {
                "name": CONTAINER,
                "image": settings.image,
                "resources": wanted,
                "volumeMounts": [*mounts, *secret_mounts],
            }
        ],
    }
    if settings.priority:
        spec["priorityClassName"] = settings.priority
    labels = {STUDY_LABEL: study_label(order.study)}
    pod: Manifest = {"metadata": {"labels": labels}, "spec": spec}
    template = read_template(order.folder / settings.template) if settings.template else {}
    return merge(template, pod)


class NoLink:
    """In place of the connection: KubeRay's cluster is not there before the manifest is applied."""

    def ask(self, name: str, *arguments: object, limit_s: float = 0.0) -> Any:
        """Refuses all requests.

        Raises:
            EngineError: Always.
        """
        raise EngineError(
            "engine.ray.kuberay: KubeRay makes the cluster from a manifest. Apply it: "
            "tuner submit study.yaml --on ray --dry-run | kubectl apply -f - "
            "To look or to end: kubectl get rayjobs, kubectl delete rayjob NAME"
        )
