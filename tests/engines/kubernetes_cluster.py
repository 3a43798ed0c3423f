"""A small stand-in for a Kubernetes cluster: Jobs whose pods are processes of this machine.

It refuses what a real API server was seen to refuse of wrong Jobs, and does what its controllers
do: a pod for each Job, a node for each pod that fits, the pod failure policy, grace periods, active
deadlines. There is no package with an API server for these tests; `KUBECONFIG_FOR_TESTS` names a
real one (test_kubernetes.py).
"""

from __future__ import annotations

import copy
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kubernetes_validate

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_GPU = "nvidia.com/gpu"


class RefusedError(Exception):
    """What the API server answers, with its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(eq=False)
class Pod:
    """A pod, and the process that plays its container."""

    manifest: dict[str, Any]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    asked_s: float | None = None

    @property
    def owner_uid(self) -> str:
        return str(self.manifest["metadata"]["ownerReferences"][0]["uid"])


@dataclass(eq=False)
class Cluster:
    """Nodes, Jobs and pods.

    Args:
        n_nodes: Nodes; each takes one pod.
        gpus: GPUs of each node.
        image_folder: Working directory of the image; None: that of the tests.
    """

    n_nodes: int = 2
    gpus: int = 4
    image_folder: Path | None = None
    namespaces: tuple[str, ...] = ("default", "vision")
    #: Verbs that the user has no right to, such as ("create", "jobs").
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    #: Quota of Jobs in a namespace; None for none.
    max_jobs: int | None = None
    images: set[str] = field(default_factory=lambda: {"train:1"})
    jobs: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="cluster-")))
    lock: threading.RLock = field(default_factory=threading.RLock)

    def check_right(self, verb: str, what: str, namespace: str) -> None:
        if (verb, what) in self.forbidden:
            raise RefusedError(
                403,
                f'{what} is forbidden: User "ann" cannot {verb} resource "{what}" in the '
                f'namespace "{namespace}"',
            )

    def create_job(self, namespace: str, job: dict[str, Any], *, is_dry_run: bool) -> Any:
        if namespace not in self.namespaces:
            raise RefusedError(404, f'namespaces "{namespace}" not found')
        _check_job(job)
        name = job["metadata"]["name"]
        with self.lock:
            if (namespace, name) in self.jobs:
                raise RefusedError(409, f'jobs.batch "{name}" already exists')
            self._check_quota(namespace, name)
            job["metadata"] |= {"namespace": namespace, "uid": str(uuid.uuid4())}
            job["metadata"]["creationTimestamp"] = now()
            job["status"] = {}
            if not is_dry_run:
                self.jobs[namespace, name] = job
        return job

    def _check_quota(self, namespace: str, name: str) -> None:
        used = sum(each == namespace for each, _ in self.jobs)
        if self.max_jobs is not None and used >= self.max_jobs:
            amounts = {"requested": 1, "used": used, "limited": self.max_jobs}
            words = ", ".join(f"{key}: count/jobs.batch={n}" for key, n in amounts.items())
            raise RefusedError(
                403, f'jobs.batch "{name}" is forbidden: exceeded quota: jobs, {words}'
            )

    def delete_job(self, namespace: str, name: str) -> None:
        with self.lock:
            if self.jobs.pop((namespace, name), None) is None:
                raise RefusedError(404, f'jobs.batch "{name}" not found')
            for pod in list(self._named(namespace, name)):
                self._ask_to_end(pod)

    def _named(self, namespace: str, job_name: str) -> Iterator[Pod]:
        for pod in self.pods:
            metadata = pod.manifest["metadata"]
            if metadata["namespace"] == namespace and metadata["labels"]["job-name"] == job_name:
                yield pod

    def evict(self, pod: Pod) -> None:
        """Takes a node back, as for a pod of a higher priority."""
        with self.lock:
            self._ask_to_end(pod)

    def ends(self) -> list[str]:
        """How the Jobs have ended, those that have."""
        with self.lock:
            conditions = [job["status"].get("conditions", []) for job in self.jobs.values()]
            return [each[0]["type"] for each in conditions if each]

    def step(self) -> None:
        """What the controllers, the scheduler and the nodes do in a moment."""
        with self.lock:
            for pod in self.pods:
                self._look_at_process(pod)
            self.pods = [pod for pod in self.pods if not _is_gone(pod)]
            for job in self.jobs.values():
                self._control(job)
            for pod in self.pods:
                if pod.manifest["status"]["phase"] == "Pending":
                    self._schedule(pod)

    def close(self) -> None:
        with self.lock:
            for pod in self.pods:
                if pod.process is not None and pod.process.poll() is None:
                    os.killpg(pod.process.pid, signal.SIGKILL)
                    pod.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _control(self, job: dict[str, Any]) -> None:
        if job["status"].get("conditions") or job["spec"].get("suspend"):
            return
        uid = job["metadata"]["uid"]
        pods = [pod for pod in self.pods if pod.owner_uid == uid]
        phases = [pod.manifest["status"]["phase"] for pod in pods]
        if "Succeeded" in phases:
            job["status"]["conditions"] = [_condition("Complete", "Completions", "")]
        elif failure := next(filter(None, map(_failure, pods)), None):
            job["status"]["conditions"] = [_condition("Failed", "PodFailurePolicy", failure)]
        elif "Pending" not in phases and "Running" not in phases:
            self._add_pod(job)

    def _add_pod(self, job: dict[str, Any]) -> None:
        template = copy.deepcopy(job["spec"]["template"])
        job_name = job["metadata"]["name"]
        name = f"{job_name}-{uuid.uuid4().hex[:5]}"
        metadata = template.setdefault("metadata", {})
        metadata |= {"name": name, "namespace": job["metadata"]["namespace"]}
        metadata["creationTimestamp"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job_name}
        metadata["ownerReferences"] = [{**owner, "uid": job["metadata"]["uid"]}]
        metadata["labels"] = {**metadata.get("labels", {}), "job-name": job_name}
        template["status"] = {"phase": "Pending"}
        self.pods.append(Pod(template, self.folder / f"{name}.log"))

    def _schedule(self, pod: Pod) -> None:
        spec = pod.manifest["spec"]
        limits = spec["containers"][0].get("resources", {}).get("limits", {})
        busy = {each.manifest["spec"].get("nodeName") for each in self.pods if each.process}
        free = [f"node-{n}" for n in range(self.n_nodes) if f"node-{n}" not in busy]
        if int(limits.get(_GPU, 0)) > self.gpus or not free:
            what = "nvidia.com/gpu" if free else "pods"
            words = f"0/{self.n_nodes} nodes are available: {self.n_nodes} Insufficient {what}."
            pod.manifest["status"]["conditions"] = [
                {"type": "PodScheduled", "status": "False", "message": words}
            ]
            return
        image = spec["containers"][0]["image"]
        if image not in self.images:
            waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}"'}
            pod.manifest["status"]["containerStatuses"] = [_container({"waiting": waiting})]
            return
        spec["nodeName"] = free[0]
        self._start(pod)

    def _start(self, pod: Pod) -> None:
        container = pod.manifest["spec"]["containers"][0]
        variables = {each["name"]: each["value"] for each in container.get("env", ())}
        program, *words = container["command"]
        with pod.log.open("wb") as log:
            pod.process = subprocess.Popen(
                [sys.executable if program == "python" else program, *words],
                cwd=self.image_folder,
                env={**os.environ, **variables},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        pod.started_s = time.monotonic()
        pod.manifest["status"] = {"phase": "Running", "startTime": now()}

    def _look_at_process(self, pod: Pod) -> None:
        if pod.process is None:
            return
        spec = pod.manifest["spec"]
        deadline_s = spec.get("activeDeadlineSeconds")
        code = pod.process.poll()
        if code is not None:
            ended = {"terminated": {"exitCode": code if code >= 0 else 128 - code}}
            pod.manifest["status"] |= {
                "phase": "Failed" if code else "Succeeded",
                "containerStatuses": [_container(ended)],
            }
            del spec["nodeName"]
            pod.process = None
            self.events.append(_event(pod.manifest["metadata"], f"exit code {code}"))
        elif deadline_s is not None and time.monotonic() > pod.started_s + deadline_s:
            self._signal_to_end(pod)
        self._kill_after_grace(pod)

    @staticmethod
    def _kill_after_grace(pod: Pod) -> None:
        if pod.asked_s is None or pod.process is None:
            return
        if time.monotonic() > pod.asked_s + pod.manifest["spec"]["terminationGracePeriodSeconds"]:
            os.killpg(pod.process.pid, signal.SIGKILL)

    def _ask_to_end(self, pod: Pod) -> None:
        pod.manifest["metadata"]["deletionTimestamp"] = now()
        self._signal_to_end(pod)

    @staticmethod
    def _signal_to_end(pod: Pod) -> None:
        """SIGTERM to PID 1 of the container alone, as container runtimes do."""
        if pod.process is not None and pod.asked_s is None:
            pod.asked_s = time.monotonic()
            with suppress(ProcessLookupError):
                pod.process.terminate()


def _is_gone(pod: Pod) -> bool:
    return pod.process is None and "deletionTimestamp" in pod.manifest["metadata"]


def _event(about: dict[str, Any], message: str) -> dict[str, Any]:
    return {
        "metadata": {"name": uuid.uuid4().hex, "namespace": about["namespace"]},
        "involvedObject": {"kind": "Pod", "name": about["name"]},
        "type": "Normal",
        "reason": "Ended",
        "message": message,
    }


def _container(state: dict[str, Any]) -> dict[str, Any]:
    names = {"name": "tuner", "image": "", "imageID": "", "ready": False, "restartCount": 0}
    return {**names, "state": state}


def _condition(kind: str, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": "True", "reason": reason, "message": message}


def _failure(pod: Pod) -> str | None:
    """What the rule FailJob says of a pod: exit codes 1 and 2."""
    statuses = pod.manifest["status"].get("containerStatuses", [])
    codes = [each["state"].get("terminated", {}).get("exitCode") for each in statuses]
    return next((f"exit code {code} is in FailJob" for code in codes if code in (1, 2)), None)


def _check_job(job: dict[str, Any]) -> None:
    """What a real API server refused of wrong Jobs, and the schema of a newer one."""
    try:
        kubernetes_validate.validate(copy.deepcopy(job), "1.31", strict=True)
    except kubernetes_validate.ValidationError as error:
        raise RefusedError(422, f"Job is invalid: {error.message}") from None
    name, spec = job["metadata"].get("name", ""), job["spec"]["template"]["spec"]
    if not _NAME.fullmatch(name) or len(name) > 63:
        raise RefusedError(422, f'Job.batch "{name}" is invalid: metadata.name: Invalid value')
    for value in job["metadata"].get("labels", {}).values():
        if len(value) > 63 or not re.fullmatch(r"([A-Za-z0-9]([\w.-]*[A-Za-z0-9])?)?", value):
            raise RefusedError(422, f"metadata.labels: Invalid value: {value}")
    if spec.get("restartPolicy") not in ("Never", "OnFailure"):
        raise RefusedError(422, "spec.template.spec.restartPolicy: Required value")
    names = [each["name"] for each in spec["containers"]]
    for container in spec["containers"]:
        if not container.get("image"):
            raise RefusedError(422, "spec.template.spec.containers[0].image: Required value")
        resources = container.get("resources", {})
        if resources.get("requests", {}).get(_GPU) != resources.get("limits", {}).get(_GPU):
            raise RefusedError(422, f"{_GPU}: must be equal to {_GPU} limit")
    for rule in job["spec"].get("podFailurePolicy", {}).get("rules", ()):
        codes = rule.get("onExitCodes")
        if codes and codes.get("containerName") not in names:
            raise RefusedError(422, "podFailurePolicy: must be one of the container names")
