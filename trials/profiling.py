"""Records a torch profiler trace of some steps of a trial into its folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.launch.plan import ENV_PROFILE, ProfiledSteps

if TYPE_CHECKING:
    import torch

    from tuner.trials.context import TrialContext


def begin_trace(context: TrialContext) -> None:
    """Prepares a trial's trace, if configured, in the training process; rank 0 only."""
    wanted = os.environ.get(ENV_PROFILE)
    if wanted is not None and context.is_main:
        path = context.checkpoint_path.parent / trace_name(context.attempt_number)
        context.trace = TraceRecorder(path, ProfiledSteps.from_text(wanted))


def trace_name(attempt: int) -> str:
    """File name of the trace of an attempt."""
    return f"profile-{attempt}.json.gz"


class TraceRecorder:
    """Records one trace: from the report before the first step to that of the last one.

    A problem with the profiler is printed and ends the recording, never the trial.

    Args:
        path: Path of the trace.
        steps: The steps; None for the block in `trial.profile()`.
    """

    def __init__(self, path: Path, steps: ProfiledSteps | None) -> None:
        self._path = path
        self._steps = steps
        self._profiler: torch.profiler.profile | None = None
        self._is_done = False
        if steps is not None and steps.first <= 1:
            # No report comes before the first step.
            self._start()

    def reported(self, step: int) -> None:
        """Called at each report, after its step."""
        if self._is_done or self._steps is None:
            return
        if step >= self._steps.last:
            self.finish()
        elif step >= self._steps.first - 1 and self._profiler is None:
            self._start()

    @contextmanager
    def block(self) -> Iterator[None]:
        """Records the first block, if the file names no steps."""
        if self._steps is not None or self._is_done or self._profiler is not None:
            yield
            return
        self._start()
        try:
            yield
        finally:
            self.finish()

    def finish(self) -> None:
        """Writes the trace, if one is being recorded. Nothing is recorded after that."""
        profiler, self._profiler = self._profiler, None
        self._is_done = True
        if profiler is None:
            return
        partial = self._path.with_name(f".{self._path.name}")
        try:
            profiler.stop()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # The name ends in .gz, so that torch compresses it.
            profiler.export_chrome_trace(str(partial))
            os.replace(partial, self._path)
        except Exception as error:  # The profiler's own; the trial continues.
            self._give_up(error)
            partial.unlink(missing_ok=True)
            return
        print(f"Profile: {self._path}", file=sys.stderr)

    def _start(self) -> None:
        import torch

        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        try:
            profiler = torch.profiler.profile(activities=activities)
            profiler.start()
        except Exception as error:  # As above: another profiler may be active.
            self._give_up(error)
            return
        self._profiler = profiler

    def _give_up(self, error: Exception) -> None:
        self._is_done = True
        print(f"No profile was written: {type(error).__name__}: {error}", file=sys.stderr)
