"""The few calls of the Kubernetes API that the tuner makes, over the official client.

Each call has a timeout, and is retried a few times if the server is overloaded. Errors are
EngineErrors with the server's own message.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from urllib3.exceptions import HTTPError

from tuner.engines.kubernetes.names import NUMBER_LABEL
from tuner.engines.kubernetes.records import JobRecord, PodRecord, with_advice
from tuner.engines.kubernetes.template import Manifest
from tuner.errors import EngineError

Result = TypeVar("Result")

_TIMEOUT_S = 15.0
#: Waits between tries, for 429 (too many requests) and failures of the server.
_PAUSES_S = (0.5, 1.5, 4.0)
_IN_CLUSTER_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class KubernetesApi:
    """Jobs and pods of one namespace.

    Args:
        namespace: Namespace; None for that of the current context.
        pause: Sleeps for a number of seconds.

    Raises:
        EngineError: If no cluster is available.
    """

    def __init__(
        self, namespace: str | None, *, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self.namespace = namespace or _current_namespace()
        self._pause = pause
        connection = _connect()
        self._jobs = client.BatchV1Api(connection)
        self._core = client.CoreV1Api(connection)

    def create_job(self, job: Manifest, *, is_dry_run: bool = False) -> bool:
        """Creates a Job; False if there is one of its name."""
        extra = {"dry_run": "All"} if is_dry_run else {}
        try:
            self._call(
                lambda: self._jobs.create_namespaced_job(
                    self.namespace,
                    job,
                    field_validation="Strict",
                    _request_timeout=_TIMEOUT_S,
                    **extra,
                )
            )
        except _AlreadyThere:
            return False
        return True

    def delete_job(self, name: str) -> None:
        """Deletes a Job and, with their grace period, its pods; an absent one is fine."""
        try:
            self._call(
                lambda: self._jobs.delete_namespaced_job(
                    name,
                    self.namespace,
                    propagation_policy="Background",
                    _request_timeout=_TIMEOUT_S,
                )
            )
        except _Absent:
            return

    def jobs(self, selector: str) -> tuple[JobRecord, ...]:
        """The Jobs with these labels."""
        found = self._call(
            lambda: self._jobs.list_namespaced_job(
                self.namespace, label_selector=selector, _request_timeout=_TIMEOUT_S
            )
        )
        return tuple(_job_record(each) for each in found.items if _number(each) is not None)

    def pods(self, selector: str) -> tuple[PodRecord, ...]:
        """The pods with these labels."""
        found = self._call(
            lambda: self._core.list_namespaced_pod(
                self.namespace, label_selector=selector, _request_timeout=_TIMEOUT_S
            )
        )
        return tuple(_pod_record(each) for each in found.items)

    def warning_of(self, job_name: str) -> str:
        """The newest warning about a Job, such as an exceeded quota; empty if none."""
        found = self._call(
            lambda: self._core.list_namespaced_event(
                self.namespace,
                field_selector=f"involvedObject.kind=Job,involvedObject.name={job_name}",
                _request_timeout=_TIMEOUT_S,
            )
        )
        warnings = [each for each in found.items if each.type == "Warning"]
        newest = max(warnings, key=_seen_at, default=None)
        return "" if newest is None else f"{newest.reason}: {newest.message}"

    def log(self, pod: str) -> str:
        """Output of a pod's first container."""
        text: str = self._call(
            lambda: self._core.read_namespaced_pod_log(
                pod, self.namespace, _request_timeout=_TIMEOUT_S
            )
        )
        return text

    def _call(self, call: Callable[[], Any]) -> Any:
        for pause_s in (*_PAUSES_S, None):
            try:
                return call()
            except ApiException as error:
                if pause_s is None or not _is_passing(error):
                    raise _translate(error, self.namespace) from None
            except HTTPError as error:
                if pause_s is None:
                    raise EngineError(_unreachable(error)) from None
            except ValueError as error:
                # The client checks what it sends.
                reason = " ".join(str(error).split())
                raise EngineError(f"Kubernetes: the Job is not valid: {reason}") from None
            self._pause(pause_s)
        raise AssertionError("unreachable")


class _AlreadyThere(EngineError):
    """An object of that name is there."""


class _Absent(EngineError):
    """There is no such object."""


def _connect() -> Any:
    try:
        # The client reads KUBECONFIG when it is imported; here it is read now.
        if files := _kubeconfig():
            config.load_kube_config(config_file=files)
        else:
            config.load_incluster_config()
    except (ConfigException, OSError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise EngineError(
            f"Kubernetes: no cluster is configured ({reason}). Name a kubeconfig: "
            "export KUBECONFIG=~/.kube/config"
        ) from None
    return client.ApiClient()


def _kubeconfig() -> str | None:
    """The kubeconfig's path, or several with colons between; None in a pod without one."""
    named = os.environ.get("KUBECONFIG")
    default = Path("~/.kube/config").expanduser()
    return named or (str(default) if default.exists() else None)


def _current_namespace() -> str:
    """The namespace of the kubeconfig's context, else of this process's pod."""
    try:
        if files := _kubeconfig():
            _, active = config.list_kube_config_contexts(config_file=files)
            return str(active["context"].get("namespace") or "default")
        return _IN_CLUSTER_NAMESPACE.read_text().strip() or "default"
    except (ConfigException, OSError, KeyError, TypeError, yaml.YAMLError):
        return "default"


def _is_passing(error: ApiException) -> bool:
    return error.status == 429 or (error.status or 0) >= 500


def _translate(error: ApiException, namespace: str) -> EngineError:
    words = _words(error)
    if error.status == 409:
        return _AlreadyThere(f"Kubernetes: {words}")
    if error.status == 404 and "namespaces" not in words:
        return _Absent(f"Kubernetes: {words}")
    if error.status == 404:
        return EngineError(
            f"engine.kubernetes.namespace is {namespace!r}, but the cluster has no such "
            "namespace. List them: kubectl get namespaces"
        )
    if error.status in (401, 403) and "quota" not in words:
        return EngineError(
            f"Kubernetes refused: {words}. Name your namespace in engine.kubernetes.namespace, or "
            "ask for the rights in examples/kubernetes/manifests/rbac.yaml."
        )
    if error.status in (429, 500, 502, 503, 504):
        return EngineError(f"Kubernetes is overloaded or failing: {words}. Try again later.")
    return EngineError(f"Kubernetes refused: {with_advice(words)}.")


def _words(error: ApiException) -> str:
    """The message of the server, else the status."""
    try:
        body = json.loads(error.body or "")
        return str(body["message"]).strip().rstrip(".")
    except (ValueError, TypeError, KeyError):
        return f"{error.status} {error.reason}"


def _unreachable(error: HTTPError) -> str:
    reason = getattr(error, "reason", None) or error
    return (
        f"Kubernetes does not answer: {' '.join(str(reason).split())}. "
        "Check the cluster: kubectl version"
    )


def _seen_at(event: Any) -> datetime:
    return (
        event.last_timestamp
        or event.event_time
        or event.metadata.creation_timestamp
        or datetime.fromtimestamp(0, UTC)
    )


def _number(job: Any) -> int | None:
    number = (job.metadata.labels or {}).get(NUMBER_LABEL, "")
    return int(number) if number.isdecimal() else None


def _job_record(job: Any) -> JobRecord:
    conditions = {each.type: each for each in job.status.conditions or ()}
    failed = _if_true(conditions.get("Failed"))
    labels = job.metadata.labels or {}
    return JobRecord(
        name=job.metadata.name,
        uid=job.metadata.uid,
        number=_number(job) or 0,
        is_complete=_if_true(conditions.get("Complete")) is not None,
        failure=None if failed is None else _join(failed.reason, failed.message),
        is_deleted=job.metadata.deletion_timestamp is not None,
        is_suspended=bool(job.spec.suspend),
        queue=labels.get("kueue.x-k8s.io/queue-name"),
    )


def _if_true(condition: Any) -> Any:
    return condition if condition is not None and condition.status == "True" else None


def _join(reason: str | None, message: str | None) -> str:
    return ": ".join(part for part in (reason, message) if part)


def _pod_record(pod: Any) -> PodRecord:
    statuses: Sequence[Any] = pod.status.container_statuses or ()
    ended = next((each.state.terminated for each in statuses if _state(each, "terminated")), None)
    return PodRecord(
        name=pod.metadata.name,
        job_uid=next((each.uid for each in pod.metadata.owner_references or ()), ""),
        phase=pod.status.phase or "Pending",
        created_at=pod.metadata.creation_timestamp,
        started_at=pod.status.start_time,
        node=pod.spec.node_name,
        is_deleted=pod.metadata.deletion_timestamp is not None,
        waits_for=_waits_for(pod, statuses),
        exit_code=None if ended is None else ended.exit_code,
        active_deadline_s=pod.spec.active_deadline_seconds,
        grace_s=pod.spec.termination_grace_period_seconds or 0,
    )


def _state(status: Any, name: str) -> Any:
    return getattr(status.state, name, None) if status.state is not None else None


def _waits_for(pod: Any, statuses: Sequence[Any]) -> str:
    for each in statuses:
        waiting = _state(each, "waiting")
        if waiting is not None:
            return _join(waiting.reason, waiting.message)
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return str(condition.message or condition.reason or "")
    return ""
