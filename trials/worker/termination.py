"""SIGTERM in a process that evaluates a trial.

The first SIGTERM that the dispatcher did not announce comes from a batch system or from `kill`. It
means "stop at your next step": the dispatcher is notified, and the program gets a verdict to end,
so that it can save. The dispatcher's own SIGTERM, or a second one, ends the process.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType

from tuner.domain import messages
from tuner.domain.attempt import AttemptId
from tuner.launch.local_host import announced_stop
from tuner.launch.request import ENV_ATTEMPT, ENV_CHANNEL, ENV_TOKEN

REASON = "SIGTERM from outside, such as from a batch system or `kill`."

_SEND_TIMEOUT_S = 10.0


class Termination:
    """The SIGTERM handler of one process.

    Args:
        environment: Variables of the attempt: the dispatcher's channel, the attempt and its token.
        leave: Called for a SIGTERM that ends this process; it need not return.
        rank: Rank of this process.
    """

    def __init__(
        self, environment: Mapping[str, str], leave: Callable[[], None], *, rank: int = 0
    ) -> None:
        self._address = environment[ENV_CHANNEL]
        self._attempt_id = AttemptId(environment[ENV_ATTEMPT])
        self._token = environment[ENV_TOKEN]
        self._folder = Path(self._address).parent
        self._leave = leave
        self._rank = rank
        self._pid = os.getpid()
        #: Whether another program than the dispatcher sent a SIGTERM.
        self.is_requested = False
        #: Whether any SIGTERM has arrived.
        self.is_heard = False

    def install(self) -> None:
        """Installs the SIGTERM handler; also handles a signal that has arrived before."""
        signal.signal(signal.SIGTERM, self._hear)
        if announced_stop.take_early_signal() or announced_stop.is_announced(
            self._folder, self._attempt_id
        ):
            signal.raise_signal(signal.SIGTERM)

    def announce(self) -> None:
        """This process signals its own group next, which is not a request from outside."""
        announced_stop.announce(self._folder, self._attempt_id)

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        self.is_heard = True
        # A fork, such as a data loader's, is its parent's to end.
        is_fork = os.getpid() != self._pid
        if (
            is_fork
            or self.is_requested
            or announced_stop.is_announced(self._folder, self._attempt_id)
        ):
            self._leave()
            return
        self.is_requested = True
        # Not `threading`, whose lock the interrupted code may hold, and not the link's socket, on
        # which it may be in the middle of a message.
        _thread.start_new_thread(self._tell, ())

    def _tell(self) -> None:
        hello = messages.Hello(
            attempt_id=self._attempt_id,
            token=self._token,
            pid=self._pid,
            is_worker=False,
            rank=self._rank,
        )
        request = messages.TerminationRequested(attempt_id=self._attempt_id, rank=self._rank)
        # A dispatcher that is gone ends this process through its guardian.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(_SEND_TIMEOUT_S)
            channel.connect(self._address)
            channel.sendall(messages.encode(hello) + messages.encode(request))
            channel.shutdown(socket.SHUT_WR)
            # Until the dispatcher has read it: its answer to the hello is of no use.
            while channel.recv(65536):
                pass
