"""Weights & Biases: runs of a project, online or offline."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from tuner.tracking.port import Point, Run, RunEnd, RunStatus, TrackedStudy

if TYPE_CHECKING:
    from wandb import Run as WandbRun

_Mode: TypeAlias = Literal["online", "offline"]

_KEY_LENGTH = 12
#: Name of the chart's horizontal axis. W&B's own step only grows, and would drop a late metric.
_STEP = "step"
#: Some W&B versions lack some of these. The process that writes is not the training process: its
#: output, load and git state do not describe the trial.
_SETTINGS: Mapping[str, object] = {
    "console": "off",
    "disable_git": True,
    "init_timeout": 30.0,
    "silent": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    # What is not flushed is lost if the process is killed.
    "x_transaction_log_flush_interval": 1.0,
}


class WandbTracker:
    """Runs of a W&B project, in a group for each study.

    Args:
        project: Name of the project.
        entity: User or team; None: the default one of the account.
        mode: `online` or `offline`; None: `WANDB_MODE`, or online.
    """

    def __init__(self, project: str, entity: str | None = None, mode: str | None = None) -> None:
        if mode not in (None, "online", "offline"):
            raise ValueError(f"mode is {mode!r}, but must be online or offline")
        self._project = project
        self._entity = entity
        self._mode = cast(_Mode | None, mode)
        self._runs: dict[int, WandbRun] = {}
        self._study: TrackedStudy

    def open(self, study: TrackedStudy) -> None:
        self._study = study

    def begin(self, run: Run, steps: Mapping[str, int]) -> Mapping[str, int]:
        opened = self._runs.get(run.trial)
        if opened is None:
            opened = self._runs[run.trial] = self._init(run)
            opened.define_metric("*", step_metric=_STEP)
        opened.config.update({f"trial.{name}": text for name, text in run.tags.items()}, True)
        # What an unfinished run holds cannot be read offline.
        return steps

    def log(self, trial: int, points: Sequence[Point]) -> None:
        ordered = sorted(points, key=lambda point: point.step)
        for step, some in itertools.groupby(ordered, key=lambda point: point.step):
            self._runs[trial].log({_STEP: step} | {each.name: each.value for each in some})

    def end(self, trial: int, ending: RunEnd) -> None:
        run = self._runs[trial]
        finals = {f"final/{name}": value for name, value in ending.values.items()}
        facts = {"outcome": ending.outcome, "duration_s": ending.duration_s}
        run.summary.update({**finals, **facts})
        run.finish(exit_code=int(ending.status is RunStatus.FAILED))
        del self._runs[trial]

    def close(self) -> None:
        while self._runs:
            _, run = self._runs.popitem()
            run.summary.update({"outcome": "unfinished"})
            run.finish()

    def _init(self, run: Run) -> WandbRun:
        import wandb

        known = wandb.Settings.model_fields
        settings = {name: value for name, value in _SETTINGS.items() if name in known}
        return wandb.init(
            project=self._project,
            entity=self._entity,
            mode=self._mode,
            id=f"{self._study.key[:_KEY_LENGTH]}-{run.trial}",
            name=run.name,
            group=self._study.name,
            config={name: _plain(value) for name, value in run.params.items()},
            dir=str(Path(self._study.folder)),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(**settings),
        )


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
