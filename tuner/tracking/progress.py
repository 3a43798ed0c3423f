"""Progress of a tracker, stored on this host, so that a later start continues from there."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True, kw_only=True)
class Progress:
    """Runs of one study in one tracker."""

    #: Last attempt of each trial whose run has ended, by trial number. A later attempt continues
    #: the run.
    ended: dict[int, int] = field(default_factory=dict)
    #: Last step of each metric, by trial.
    steps: dict[int, dict[str, int]] = field(default_factory=dict)

    def add(self, other: Progress) -> None:
        """Merges the progress of another process."""
        for trial, attempt in other.ended.items():
            self.ended[trial] = max(attempt, self.ended.get(trial, attempt))
        for trial, steps in other.steps.items():
            mine = self.steps.setdefault(trial, {})
            for name, step in steps.items():
                mine[name] = max(step, mine.get(name, step))

    def has_written(self, trial: int, steps: Mapping[str, int]) -> None:
        """A run holds points up to these steps."""
        self.steps[trial] = dict(steps)

    def has_ended(self, trial: int, attempt: int) -> None:
        """A run is complete, up to and with this attempt of its trial."""
        self.ended[trial] = attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressFiles:
    """Progress files of one tracker: one per dispatcher, each written by its own.

    Args:
        folder: Their folder.
        tracker: Name of the tracker.
        study_key: Key of the study; files of other studies are ignored.
    """

    folder: Path
    tracker: str
    study_key: str

    def path(self, dispatcher_id: int) -> Path:
        """The file of a dispatcher."""
        return self.folder / f"{self.tracker}-{dispatcher_id}.json"

    def read(self, dispatchers: Collection[int]) -> Progress:
        """Merged progress of these dispatchers; damaged files count as absent."""
        progress = Progress()
        for dispatcher_id in dispatchers:
            with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
                progress.add(self._read_one(self.path(dispatcher_id)))
        return progress

    def write(self, dispatcher_id: int, progress: Progress) -> None:
        """Replaces the file of a dispatcher.

        Raises:
            OSError: If it cannot be written.
        """
        content = {
            "study": self.study_key,
            "ended": {str(trial): attempt for trial, attempt in progress.ended.items()},
            "steps": {str(trial): steps for trial, steps in progress.steps.items()},
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(dispatcher_id)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(content))
        os.replace(partial, path)

    def remove(self, dispatchers: Collection[int]) -> None:
        """Removes files whose content was merged into another one."""
        for dispatcher_id in dispatchers:
            self.path(dispatcher_id).unlink(missing_ok=True)

    def _read_one(self, path: Path) -> Progress:
        content = json.loads(path.read_text())
        if content["study"] != self.study_key:
            return Progress()
        return Progress(
            ended={int(trial): int(attempt) for trial, attempt in content["ended"].items()},
            steps={
                int(trial): {str(name): int(step) for name, step in steps.items()}
                for trial, steps in content["steps"].items()
            },
        )
