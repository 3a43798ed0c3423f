"""The dispatcher's handle on the process that makes the suggestions that take long.

One request is under way at a time. The process (`worker`, beside this module) holds the sampler,
and with it its random numbers; it sees nothing but the trials that a request brings.
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
#: From SIGKILL; a process in uninterruptible sleep takes no notice of it.
_END_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a suggestion is made from."""

    directions: Sequence[StudyDirection]
    #: All that the sampler is shown.
    trials: Sequence[FrozenTrial]
    space: Mapping[str, BaseDistribution]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """Parameters for the next trial, and what the sampler notes with them."""

    params: Mapping[str, Any]
    system_attrs: Mapping[str, Any]
    #: In the making.
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The sampler raised an error."""

    error: Exception
    #: Where.
    trace: str


SlowSampler: TypeAlias = GPSampler | CurveGPSampler
Answer: TypeAlias = Suggestion | Failure


class SuggesterLost(Exception):
    """The process was ended by somebody else."""


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
        #: Whether it has imported everything and has nothing to do: then sending never waits.
        self._is_idle = False
        #: Whether it has ever been idle: until then it takes seconds to import torch.
        self.is_awake = False
        self._request: Request | None = None
        self._answer: Answer | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        """Readable when there is something to hear."""
        return self._connection.fileno()

    def ask(self, request: Request) -> None:
        """Begins a suggestion, as soon as the process can; the one before has been heard.

        Raises:
            SuggesterLost: If the process is gone.
        """
        self._request = request
        self._send_once_idle()

    def receive(self, timeout_s: float | None = 0.0) -> None:
        """Takes in what the process says within a time; None for as long as it takes.

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
        """What was asked for last, where it is there; given once."""
        answer, self._answer = self._answer, None
        return answer

    def close(self) -> None:
        """Ends the process, whatever it is doing. Safe to call twice."""
        self._connection.close()
        self._process.kill()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            _log.warning("Process %d of the suggestions did not end: not waited for", self.pid)
