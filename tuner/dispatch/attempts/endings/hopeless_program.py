"""A program that cannot work: its first attempts all fail in the same way."""

from __future__ import annotations

import re

from tuner.domain.attempt import Cause, Ending, Outcome
from tuner.launch.failure_diagnosis import ENDED_ITSELF
from tuner.launch.hints import HINT
from tuner.store.records.broken_program import PROGRAM_CAUSES

#: So many failures alike, and nothing else, and the next one is no surprise.
N_ALIKE = 3

# What differs between two failures of one kind: numbers, addresses, paths of a trial's own.
_VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+(\.\d+)?|/\S+")


class Streak:
    """Notes how attempts end, until one ends well.

    Args:
        is_over: Whether the study has had a trial that ended well before.
    """

    def __init__(self, *, is_over: bool) -> None:
        self._is_over = is_over
        self._kind = ""
        self._n_alike = 0

    def note(self, ending: Ending) -> bool:
        """Takes in how an attempt ended; says whether it ends a hopeless row, so far."""
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
    """The line that tells most: a traceback has its exception at the end.

    What a program without a result printed last is no reason; what was looked for is.
    """
    lines = [line.strip() for line in ending.detail.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(HINT)] or lines
    if not lines:
        return ending.outcome.value.replace("_", " ")
    if ending.cause is Cause.NO_RESULT:
        return lines[min(1, len(lines) - 1)].removesuffix(" The last ones:")
    if ending.cause is Cause.EXIT_CODE and ENDED_ITSELF in lines:
        return lines[0]
    return lines[-1]
