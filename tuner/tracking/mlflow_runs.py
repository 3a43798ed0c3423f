"""MLflow: an experiment for each study, in a tracking server or a database."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from tuner.tracking.port import Point, Run, RunEnd, RunStatus, TrackedStudy

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

T = TypeVar("T")

#: Before the name of each tag.
TAG_PREFIX = "gpu-tuner."
#: Tag that identifies the run of a trial: the study's key and the trial's number.
RUN_TAG = f"{TAG_PREFIX}run"
_FINAL = "final/"
_STATUS: Mapping[RunStatus, str] = {
    RunStatus.COMPLETED: "FINISHED",
    RunStatus.PRUNED: "KILLED",
    RunStatus.FAILED: "FAILED",
}
#: MLflow's own limits of one request, and of a value.
_MAX_METRICS, _MAX_PARAMS, _MAX_VALUE = 500, 100, 6000
_NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")


class MLflowTracker:
    """Runs of an MLflow experiment.

    Args:
        uri: Tracking URI, such as `http://mlflow.example:5000` or `sqlite:///mlflow.db`. A relative
            path is in the study file's folder.
        experiment: Name of the experiment; None: that of the study.
    """

    def __init__(self, uri: str, experiment: str | None = None) -> None:
        self._uri = uri
        self._experiment = experiment
        self._runs: dict[int, str] = {}
        self._client: MlflowClient
        self._experiment_id = ""
        self._key = ""

    def open(self, study: TrackedStudy) -> None:
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(tracking_uri=self._uri)
        self._experiment_id = self._find_experiment(self._experiment or study.name)
        self._key = study.key

    def begin(self, run: Run, steps: Mapping[str, int]) -> Mapping[str, int]:
        run_tag = f"{self._key}/{run.trial}"
        found = self._client.search_runs(
            [self._experiment_id], f"tags.`{RUN_TAG}` = '{run_tag}'", max_results=1
        )
        held: dict[str, int] = {}
        if found:
            run_id = found[0].info.run_id
            held = self._last_steps(run_id, found[0].data.metrics)
            self._client.update_run(run_id, status="RUNNING")
        else:
            made = self._client.create_run(
                self._experiment_id,
                start_time=int(run.started_at.timestamp() * 1000),
                tags={RUN_TAG: run_tag},
                run_name=run.name,
            )
            run_id = made.info.run_id
        self._runs[run.trial] = run_id
        self._describe(run_id, run)
        # Names that MLflow does not take are known by what they became.
        return held | {name: held[_name(name)] for name in steps if _name(name) in held}

    def log(self, trial: int, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(_name(each.name), each.value, int(each.at.timestamp() * 1000), each.step)
            for each in points
        ]
        for some in _batches(metrics, _MAX_METRICS):
            self._client.log_batch(self._runs[trial], metrics=some)

    def end(self, trial: int, ending: RunEnd) -> None:
        from mlflow.entities import Metric, RunTag

        run_id = self._runs[trial]
        at_ms = int(ending.ended_at.timestamp() * 1000)
        facts = {"outcome": ending.outcome, "duration_s": f"{ending.duration_s:.1f}"}
        self._client.log_batch(
            run_id,
            metrics=[
                Metric(_name(f"{_FINAL}{name}"), value, at_ms, 0)
                for name, value in ending.values.items()
            ],
            tags=[RunTag(f"{TAG_PREFIX}{name}", text) for name, text in facts.items()],
        )
        self._client.set_terminated(run_id, status=_STATUS[ending.status], end_time=at_ms)
        del self._runs[trial]

    def close(self) -> None:
        """Nothing is buffered. Runs that have not ended stay RUNNING."""
        self._runs.clear()

    def _find_experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:
                # Another dispatcher has made it at the same moment.
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        if found.lifecycle_stage == "deleted":
            raise ValueError(
                f"The experiment {name!r} is deleted in MLflow. Restore it, or name another one: "
                "track: {mlflow: {uri: ..., experiment: NAME}}"
            )
        return str(found.experiment_id)

    def _last_steps(self, run_id: str, metrics: Mapping[str, float]) -> dict[str, int]:
        return {
            name: max(each.step for each in self._client.get_metric_history(run_id, name))
            for name in metrics
            if not name.startswith(_FINAL)
        }

    def _describe(self, run_id: str, run: Run) -> None:
        from mlflow.entities import Param, RunTag

        # A program of before may have ended in the middle: the same values are taken again.
        params = [Param(_name(name), str(value)[:_MAX_VALUE]) for name, value in run.params.items()]
        for some in _batches(params, _MAX_PARAMS):
            self._client.log_batch(run_id, params=some)
        tags = [RunTag(f"{TAG_PREFIX}{name}", text[:_MAX_VALUE]) for name, text in run.tags.items()]
        self._client.log_batch(run_id, tags=tags)


def _name(name: str) -> str:
    """A name as MLflow takes it."""
    return _NOT_IN_NAMES.sub("_", name)[:250]


def _batches(items: Sequence[T], size: int) -> Iterator[list[T]]:
    left = iter(items)
    while some := list(islice(left, size)):
        yield some
