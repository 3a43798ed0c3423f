"""Commands to a running study, and whether it is paused."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from tuner.domain.budget import Budget
from tuner.host.clock import Instant
from tuner.store.records.commands import NEW_TRIAL, Command, Commands, Order

_LOOK_EVERY_S = 2.0


class Orders:
    """Reads commands at intervals.

    Args:
        commands: Commands to the study.
        say: Shows a message to the user.
    """

    def __init__(self, commands: Commands, say: Callable[[str], None]) -> None:
        self._commands = commands
        self._looked_at_s = 0.0
        #: Read but not carried out yet.
        self._line: deque[Command] = deque()
        #: The user who paused the study, `user@host`; empty if it is not paused.
        self.paused_by = commands.paused_by
        if self.paused_by:
            say(f"The study is paused (by {self.paused_by}): no trial starts until `tuner resume`.")

    def poll(self, now: Instant) -> Iterator[Command]:
        """Yields new commands; pausing and resuming are applied here.

        If the caller raises an error while it handles a command, the next call yields it again.
        """
        if now.monotonic_s - self._looked_at_s >= _LOOK_EVERY_S:
            self._looked_at_s = now.monotonic_s
            self._line.extend(self._commands.read())
        while self._line:
            command = self._line[0]
            if command.order is Order.PAUSE:
                self.paused_by = command.asked_by
            if command.order is Order.RESUME:
                self.paused_by = ""
            yield command
            self._line.popleft()


def changed(budget: Budget, command: Command) -> Budget:
    """A budget with the changes of `tuner set`; the sender has validated them."""
    limits = {key.removeprefix("budget."): value for key, value in command.arguments.items()}
    known = {
        "trials": "trials",
        "time": "time_s",
        "device_hours": "device_hours",
        "energy": "energy_kwh",
    }
    return replace(budget, **{known[key]: value for key, value in limits.items() if key in known})  # type: ignore[arg-type]


def told(command: Command) -> str:
    """A command as text, for the user and the records."""
    match command.order:
        case Order.PAUSE:
            what = "Paused: no trial starts until `tuner resume`, running trials continue"
        case Order.RESUME:
            what = "Resumed: trials start again"
        case Order.STOP if command.trial_number is not None:
            what = f"Trial {command.trial_number} is stopped"
        case Order.STOP:
            what = "Stopping: no trial starts any more, those that run end or save"
        case Order.SET:
            limits = ", ".join(f"{key}={value}" for key, value in command.arguments.items())
            what = f"Changed: {limits}"
        case Order.RETRY:
            new = command.arguments[NEW_TRIAL]
            what = f"Trial {command.trial_number} is tried once more, as trial {new}"
    return f"{what} (asked for by {command.asked_by})."


def refusal_text(command: Command, reason: str) -> str:
    """The text for a command that cannot be carried out."""
    wanted = ", ".join(f"{key}={value}" for key, value in command.arguments.items())
    return f"Not changed: {wanted} (asked for by {command.asked_by}). {reason}"
