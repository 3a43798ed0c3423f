"""Allocations on Kubernetes: a Job of one pod for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tuner.config.sections.engine import EngineConfig
from tuner.domain.allocation import Allocation, OwnAllocation
from tuner.engines.environment import own_allocation
from tuner.engines.kubernetes.manifest import ENV_TIME, job
from tuner.engines.kubernetes.names import job_name, selector
from tuner.engines.kubernetes.records import JobRecord, PodRecord, allocation_of
from tuner.engines.kubernetes.template import Manifest, read_template
from tuner.engines.port import AllocationOrder
from tuner.errors import EngineError

if TYPE_CHECKING:
    from tuner.engines.kubernetes.api import KubernetesApi


class KubernetesEngine:
    """Submits Jobs with the rights and the context of the current kubeconfig.

    Args:
        config: `engine` of the study file.
    """

    name = "kubernetes"
    #: The command runs in the working directory of the image, with the image's Python.
    code_is_in_image = True

    def __init__(self, config: EngineConfig) -> None:
        self._config = config.kubernetes
        self._connected: KubernetesApi | None = None

    def check(self, order: AllocationOrder) -> None:
        """Validates the Job on the server with a dry run."""
        self._check_settings(order)
        (manifest,) = self._manifests(order, [0])
        self._api.create_job(manifest, is_dry_run=True)
        self._api.jobs(selector(order.study))
        self._api.pods(selector(order.study))

    def render(self, order: AllocationOrder, numbers: Sequence[int]) -> str:
        """The Jobs as YAML documents, for `kubectl apply -f`."""
        manifests = self._manifests(order, numbers)
        return "---\n".join(
            yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True) for manifest in manifests
        )

    def submit(self, order: AllocationOrder, numbers: Sequence[int]) -> tuple[Allocation, ...]:
        """Creates the Jobs that are not there; Jobs that have ended are replaced."""
        self._check_settings(order)
        over = {each.number: each for each in self.allocations(order.study) if each.state.is_over}
        created: list[str] = []
        try:
            for number, manifest in zip(numbers, self._manifests(order, numbers), strict=True):
                if number in over:
                    self._api.delete_job(over[number].name)
                if self._api.create_job(manifest):
                    created.append(job_name(order.study, number))
        except EngineError:
            self.cancel(created)
            raise
        known = {each.number: each for each in self.allocations(order.study)}
        return tuple(known[number] for number in numbers)

    def allocations(self, study: str) -> tuple[Allocation, ...]:
        """The study's Jobs; those deleted or ended more than a day ago are gone."""
        pods = self._pods_by_job(study)
        jobs = sorted(self._api.jobs(selector(study)), key=lambda each: each.number)
        return tuple(
            allocation_of(self._with_warning(each, pods), pods.get(each.uid, ())) for each in jobs
        )

    def cancel(self, names: Sequence[str]) -> None:
        """Deletes Jobs; their pods get SIGTERM and the grace period."""
        for name in names:
            self._api.delete_job(name)

    def log_of(self, name: str, log_folder: Path) -> Path | str:
        """Output of the newest pod that has any."""
        pods = [pod for pod in self._api.pods(f"job-name={name}") if pod.started_at is not None]
        if not pods:
            raise EngineError(
                f"Allocation {name} has no output: none of its pods has started, or it was "
                f"deleted. Look: kubectl describe job {name}"
            )
        return self._api.log(max(pods, key=lambda pod: pod.created_at).name)

    def own_allocation(self, environ: Mapping[str, str]) -> OwnAllocation | None:
        """The allocation of this pod; its time counts from the start of the dispatcher."""
        own = own_allocation(self.name, environ, is_requeued=True)
        time_s = environ.get(ENV_TIME, "")
        if own is None or not time_s.isdecimal():
            return own
        return replace(own, deadline=datetime.now(UTC) + timedelta(seconds=int(time_s)))

    def show_progress(self, name: str, text: str) -> None:
        """Nothing: the pods of a study have no rights in the cluster."""

    def look_command(self, study: str) -> str:
        where = f" --namespace {self._config.namespace}" if self._config.namespace else ""
        return f"kubectl get jobs,pods{where} --selector {selector(study)}"

    @property
    def _api(self) -> KubernetesApi:
        """The connection; the client is imported here, which takes a second."""
        if self._connected is None:
            from tuner.engines.kubernetes.api import KubernetesApi

            self._connected = KubernetesApi(self._config.namespace)
        return self._connected

    def _check_settings(self, order: AllocationOrder) -> None:
        if not self._config.image:
            raise EngineError(
                "engine.kubernetes.image is missing, but Kubernetes needs an image with the tuner "
                "and your code. Build one (examples/kubernetes/Dockerfile) and name it by digest: "
                "image: registry.example/me/train@sha256:..."
            )
        if order.time_s is not None and order.time_s <= order.notice_s:
            raise EngineError(
                f"engine.time is {order.time_s:.0f} s, but an allocation needs more than "
                f"{order.notice_s} s to save (twice trial.stop_grace and 20 s). "
                "Set a longer time, or a shorter trial.stop_grace."
            )

    def _manifests(self, order: AllocationOrder, numbers: Sequence[int]) -> list[Manifest]:
        template = (
            read_template(order.folder / self._config.template) if self._config.template else None
        )
        return [job(order, number, self._config, template) for number in numbers]

    def _pods_by_job(self, study: str) -> dict[str, tuple[PodRecord, ...]]:
        found: dict[str, tuple[PodRecord, ...]] = {}
        for pod in self._api.pods(selector(study)):
            found[pod.job_uid] = (*found.get(pod.job_uid, ()), pod)
        return found

    def _with_warning(self, job: JobRecord, pods: Mapping[str, Sequence[PodRecord]]) -> JobRecord:
        """Adds the cluster's warning to a Job without a pod, for example an exceeded quota."""
        if job.uid in pods or job.is_complete or job.failure is not None or job.is_suspended:
            return job
        return replace(job, warning=self._api.warning_of(job.name))
