"""Detects a program that cannot work: its first attempts all fail in the same way."""

from __future__ import annotations

import re

from tuner.domain.attempt import Cause, Ending, Outcome
from tuner.launch.failure_diagnosis import ENDED_ITSELF
from tuner.launch.hints import HINT
from tuner.store.records.broken_program import PROGRAM_CAUSES

#: Consecutive failures of the same kind, before any success, after which the study stops.
N_ALIKE = 3

# What differs between two failures of one kind: numbers, addresses, paths of a trial's own.
_VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+(\.\d+)?|/\S+")
# What torch says below each CUDA error, whichever it is.
_ADVICE = re.compile(
    r"Search for `cudaError|CUDA kernel errors might be asynchronously"
    r"|For debugging consider passing CUDA_LAUNCH_BLOCKING|Compile with `TORCH_USE_CUDA_DSA`"
)


class Streak:
    """Counts consecutive failures of the same kind until an attempt succeeds.

    Args:
        is_over: Whether a trial of the study has already ended without a failure.
    """

    def __init__(self, *, is_over: bool) -> None:
        self._is_over = is_over
        self._kind = ""
        self._n_alike = 0

    def note(self, ending: Ending) -> bool:
        """Counts an ending; returns whether the program is hopeless by now."""
        if self._is_over or ending.outcome in (Outcome.CANCELLED, Outcome.LOST):
            return False
        if ending.cause not in PROGRAM_CAUSES or not ending.outcome.is_failure:
            # Memory, time and values depend on the configuration: another one may do.
            self._is_over = not ending.outcome.is_failure
            self._n_alike = 0
            return False
        kind = f"{ending.cause} {_VARYING.sub('#', said_last(ending))}"
        self._n_alike = self._n_alike + 1 if kind == self._kind else 1
        self._kind = kind
        return self._n_alike >= N_ALIKE


def said_last(ending: Ending) -> str:
    """The line of a failure text that explains most, such as the exception of a traceback.

    For a program without a result, this is what was looked for, not its last output.
    """
    lines = [line.strip() for line in ending.detail.splitlines() if line.strip()]
    lines = [line for line in lines if not (line.startswith(HINT) or _ADVICE.match(line))] or lines
    if not lines:
        return ending.outcome.value.replace("_", " ")
    if ending.cause is Cause.NO_RESULT:
        return lines[min(1, len(lines) - 1)].removesuffix(" The last ones:")
    if ending.cause is Cause.EXIT_CODE and ENDED_ITSELF in lines:
        return lines[0]
    return lines[-1]
