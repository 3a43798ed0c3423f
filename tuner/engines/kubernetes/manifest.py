"""The Job of one allocation.

One Job of one pod for each node, never a Job of N pods: the cluster can then start and take back
single nodes. Exit code 75 and disruptions (preemption, drained nodes) make another pod and do not
count as failures; exit codes 1 and 2 end the Job (pod failure policy, stable since 1.31).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from tuner.config.sections.engine import KubernetesConfig
from tuner.engines.kubernetes.names import (
    NUMBER_LABEL,
    QUEUE_LABEL,
    STUDY_ANNOTATION,
    STUDY_LABEL,
    job_name,
    study_label,
)
from tuner.engines.kubernetes.template import Manifest, merge
from tuner.engines.port import ENV_ALLOCATION, ENV_NUMBER, AllocationOrder
from tuner.engines.setup_lines import setup_lines

CONTAINER = "tuner"
#: Seconds that an allocation may take; its end is not known before its pod starts.
ENV_TIME = "TUNER_ALLOCATION_TIME_S"
GPU = "nvidia.com/gpu"
#: An ended Job is deleted after a day.
_KEPT_S = 24 * 60 * 60
#: Failures of the dispatcher that are neither an exit code of its own nor a disruption.
_BACKOFF_LIMIT = 20


def job(
    order: AllocationOrder, number: int, config: KubernetesConfig, template: Manifest | None = None
) -> Manifest:
    """The Job of one allocation.

    Args:
        order: What each allocation of the study has.
        number: Number of the allocation.
        config: `engine.kubernetes` of the study file.
        template: Pod template of the user, below ours.
    """
    labels = {STUDY_LABEL: study_label(order.study), NUMBER_LABEL: str(number)}
    queue = {QUEUE_LABEL: config.queue} if config.queue else {}
    annotations = {STUDY_ANNOTATION: order.study}
    pod: Manifest = {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": _pod_spec(order, number, config),
    }
    metadata: Manifest = {
        "name": job_name(order.study, number),
        "labels": labels | queue,
        "annotations": annotations,
    }
    if config.namespace:
        metadata["namespace"] = config.namespace
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": _BACKOFF_LIMIT,
            "ttlSecondsAfterFinished": _KEPT_S,
            "podFailurePolicy": {"rules": _failure_rules()},
            "template": merge(template or {}, pod),
        },
    }


def _failure_rules() -> list[Manifest]:
    return [
        {
            "action": "FailJob",
            "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [1, 2]},
        },
        {
            "action": "Ignore",
            "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [75]},
        },
        {
            "action": "Ignore",
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
        },
    ]


def _pod_spec(order: AllocationOrder, number: int, config: KubernetesConfig) -> Manifest:
    volumes: list[Manifest] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    mounts: list[Manifest] = [{"name": "shm", "mountPath": "/dev/shm"}]
    secret_volumes, secret_mounts = secret_files(config)
    spec: Manifest = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": order.notice_s,
        "automountServiceAccountToken": False,
        "volumes": [*volumes, *secret_volumes],
        "containers": [
            {
                "name": CONTAINER,
                "image": config.image or "",
                "command": _command(order),
                "env": _variables(order, number),
                "resources": resources(order),
                "volumeMounts": [*mounts, *secret_mounts],
            }
        ],
    }
    if order.time_s is not None:
        # SIGTERM comes when the deadline has passed, and the grace period follows.
        spec["activeDeadlineSeconds"] = max(1, int(order.time_s) - order.notice_s)
    if config.priority:
        spec["priorityClassName"] = config.priority
    return spec


def _command(order: AllocationOrder) -> list[str]:
    """The words of the dispatcher, which is PID 1: that one alone gets SIGTERM."""
    if not order.setup:
        return list(order.command)
    lines = (*setup_lines(order.setup), f"exec {shlex.join(order.command)}")
    return ["bash", "-c", "\n".join(lines)]


def _variables(order: AllocationOrder, number: int) -> list[Manifest]:
    own: dict[str, str] = {
        ENV_ALLOCATION: job_name(order.study, number),
        ENV_NUMBER: str(number),
    }
    if order.time_s is not None:
        own[ENV_TIME] = str(int(order.time_s))
    everything: Mapping[str, str] = {**order.environment, **own}
    return [{"name": name, "value": value} for name, value in sorted(everything.items())]


def secret_files(config: KubernetesConfig) -> tuple[list[Manifest], list[Manifest]]:
    """Volumes and mounts for the Secret's keys as files; empty without a Secret."""
    if not config.secret:
        return [], []
    name = "tuner-secret"
    return (
        [{"name": name, "secret": {"secretName": config.secret}}],
        [{"name": name, "mountPath": config.secret_folder, "readOnly": True}],
    )


def resources(order: AllocationOrder) -> Manifest:
    """Requests equal limits, which Kubernetes demands of GPUs and which keeps pods longest."""
    wanted: dict[str, str] = {}
    if order.devices:
        wanted[GPU] = str(order.devices)
    if order.cpus is not None:
        wanted["cpu"] = str(order.cpus)
    if order.memory_bytes is not None:
        wanted["memory"] = str(order.memory_bytes)
    return {"requests": dict(wanted), "limits": dict(wanted)} if wanted else {}
