"""What the dispatcher needs from the outside: who starts workers, how they speak, what wakes it.

On this host these are `local.LocalLauncher`, `channel.ChannelServer` and `inbox.Inbox`; engines
such as Ray or Slurm may bring their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tuner import messages
from tuner.attempt import AttemptId
from tuner.launch.inbox import Event, SourceId
from tuner.launch.request import LaunchRequest


class Launcher(Protocol):
    """Starts and ends workers; their exits arrive as events in the inbox."""

    def launch(self, requests: Sequence[LaunchRequest]) -> tuple[int, ...]:
        """Starts a process for each rank of one attempt and gives their pids, in order.

        Each is the head of a process group of its own.

        Raises:
            LaunchError: If one could not be started; none is left then.
        """

    def free_port(self) -> int:
        """A TCP port of this host that nobody uses now, and that was not given away lately."""

    def terminate(self, attempt_id: AttemptId) -> None:
        """Asks all processes of an attempt to end (SIGTERM). No error where it has ended."""

    def kill(self, attempt_id: AttemptId) -> None:
        """Ends all processes of an attempt at once (SIGKILL). No error where it has ended."""

    def close(self) -> None:
        """Ends everything that is left. Safe to call twice."""


class Channel(Protocol):
    """The dispatcher's end of the channel to workers."""

    address: str

    def expect(self, attempt_id: AttemptId) -> str: ...

    def send(self, source: SourceId, message: messages.ToWorker) -> None: ...

    def broadcast(self, attempt_id: AttemptId, message: messages.ToWorker) -> None: ...

    def read_rest(self, attempt_id: AttemptId) -> Sequence[Event]: ...

    def dismiss(self, attempt_id: AttemptId) -> None: ...


class Events(Protocol):
    """Where everything that wakes the dispatcher comes from."""

    def drain(self, timeout_s: float) -> Sequence[Event]: ...
