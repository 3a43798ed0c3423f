"""The dispatcher's client of the process that makes slow suggestions.

It has one request in flight at a time. The process (`worker`, in this package) holds the sampler
and its random state; it sees only the trials in a request.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from typing import Any, TypeAlias

from optuna.distributions import BaseDistribution
from optuna.samplers import GPSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from tuner.search.samplers.curve_gp.sampler import CurveGPSampler

_log = logging.getLogger(__name__)
#: Seconds after SIGKILL; a process in uninterruptible sleep does not react to it.
_END_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Input of a suggestion."""

    directions: Sequence[StudyDirection]
    #: All that the sampler is shown.
    trials: Sequence[FrozenTrial]
    space: Mapping[str, BaseDistribution]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """Parameters for the next trial, and the sampler's attributes for it."""

    params: Mapping[str, Any]
    system_attrs: Mapping[str, Any]
    #: In the making.
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The sampler raised an error."""

    error: Exception
    #: Its traceback.
    trace: str


SlowSampler: TypeAlias = GPSampler | CurveGPSampler
Answer: TypeAlias = Suggestion | Failure


class SuggesterLost(Exception):
    """The process was ended from outside."""


class Suggester:
    """The dispatcher's handle on the process.

    Args:
        sampler: Makes the suggestions there, from a copy of its own.
    """

    def __init__(self, sampler: SlowSampler) -> None:
        self._connection, far = Pipe()
        with far:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tuner.search.samplers.out_of_process.worker",
                    str(far.fileno()),
                ],
                pass_fds=[far.fileno()],
                start_new_session=True,
            )
        self._connection.send(sampler)
        #: Whether all imports are done and no request is in flight: then sending never blocks.
        self._is_idle = False
        #: Whether it has ever been idle: until then it takes seconds to import torch.
        self.is_awake = False
        self._request: Request | None = None
        self._answer: Answer | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        """File descriptor, readable when a message has arrived."""
        return self._connection.fileno()

    def ask(self, request: Request) -> None:
        """Requests a suggestion, which starts once the process is idle.

        Raises:
            SuggesterLost: If the process is gone.
        """
        self._request = request
        self._send_once_idle()

    def receive(self, timeout_s: float | None = 0.0) -> None:
        """Reads a reply that arrives within a time; None waits without a limit.

        Raises:
            SuggesterLost: If the process is gone.
        """
        try:
            if not self._connection.poll(timeout_s):
                return
            self._answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise SuggesterLost from error
        self._is_idle = self.is_awake = True
        self._send_once_idle()

    def _send_once_idle(self) -> None:
        if not self._is_idle or self._request is None:
            return
        try:
            self._connection.send(self._request)
        except OSError as error:
            raise SuggesterLost from error
        self._is_idle, self._request = False, None

    def take(self) -> Answer | None:
        """The reply to the last request, if it has arrived; returned once."""
        answer, self._answer = self._answer, None
        return answer

    def close(self) -> None:
        """Kills the process. Safe to call twice."""
        self._connection.close()
        self._process.kill()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            _log.warning("Process %d of the suggestions did not end: not waited for", self.pid)
