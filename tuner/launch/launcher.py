"""What the dispatcher needs from whatever starts workers: this host today, engines later."""

from __future__ import annotations

from typing import Protocol

from tuner.attempt import AttemptId
from tuner.launch.request import LaunchRequest


class Launcher(Protocol):
    """Starts and ends workers; their exits arrive as events in the inbox."""

    def launch(self, request: LaunchRequest) -> int:
        """Starts a worker and gives the pid of its first process, the head of its group.

        Raises:
            LaunchError: If it could not be started.
        """

    def terminate(self, attempt_id: AttemptId) -> None:
        """Asks all processes of an attempt to end (SIGTERM). No error where it has ended."""

    def kill(self, attempt_id: AttemptId) -> None:
        """Ends all processes of an attempt at once (SIGKILL). No error where it has ended."""

    def close(self) -> None:
        """Ends everything that is left. Safe to call twice."""
