"""Interfaces of the dispatcher to the outside: launcher, channel and events.

On this host these are `local_host.launcher.LocalLauncher`, `channel.ChannelServer` and
`inbox.Inbox`; engines such as Ray or Slurm may bring their own. Only `tuner.compose.start` names
the launcher of a study: to add one, add a package next to `local_host`, and a line there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tuner.domain import messages
from tuner.domain.attempt import AttemptId
from tuner.host.process_identity import ProcessIdentity
from tuner.launch.inbox import Event, SourceId
from tuner.launch.request import LaunchRequest, Program


class Launcher(Protocol):
    """Starts and ends workers; their exits arrive as events in the inbox."""

    def launch(self, requests: Sequence[LaunchRequest]) -> tuple[int, ...]:
        """Starts a process for each rank of one attempt; returns their pids, in order.

        Each leads a process group of its own.

        Raises:
            LaunchError: If one could not be started; then none is left running.
        """

    def free_port(self) -> int:
        """A free TCP port of this host that was not returned recently."""

    def terminate(self, attempt_id: AttemptId) -> None:
        """Sends SIGTERM to all processes of an attempt. No error if it has ended."""

    def kill(self, attempt_id: AttemptId) -> None:
        """Sends SIGKILL to all processes of an attempt. No error if it has ended."""

    def close(self) -> None:
        """Ends everything that is left. Safe to call twice."""


class Guard(Protocol):
    """Ends process groups should the dispatcher's process die."""

    def watch(self, group: int) -> None:
        """Ends this process group should the dispatcher's process die."""

    def release(self, group: int) -> None:
        """The group has ended."""


class StudyLauncher(Launcher, Protocol):
    """A launcher, with the other objects needed to build a study's dispatcher."""

    @property
    def folder(self) -> Path:
        """Folder for sockets; removed when the launcher is closed."""

    @property
    def guard(self) -> Guard:
        """Ends processes that the dispatcher starts itself: hooks and slow samplers."""

    def check(self, program: Program, parameters: Sequence[str] = ()) -> tuple[str, ...]:
        """Checks whether workers can run a program.

        Args:
            program: The program of the trials.
            parameters: Names of the search space, for the messages.

        Returns:
            Notes on the program, which works.

        Raises:
            LaunchError: If they cannot; worded to follow the study file's name.
        """

    def leaves_workers(self, process: ProcessIdentity) -> bool:
        """Whether workers of a dispatcher that is gone still run, for which its trials wait."""


class Channel(Protocol):
    """The dispatcher's end of the channel to workers."""

    address: str

    def expect(self, attempt_id: AttemptId) -> str: ...

    def send(self, source: SourceId, message: messages.ToWorker) -> None: ...

    def broadcast(self, attempt_id: AttemptId, message: messages.ToWorker) -> None: ...

    def read_rest(self, attempt_id: AttemptId) -> Sequence[Event]: ...

    def dismiss(self, attempt_id: AttemptId) -> None: ...


class Events(Protocol):
    """Source of all events that wake the dispatcher."""

    def drain(self, timeout_s: float) -> Sequence[Event]: ...
