"""How a program that evaluates a trial speaks to the dispatcher: one socket, no threads.

No thread reads the socket, so that training code may fork (data loaders do) at any moment. What
the dispatcher sent is read when the program asks for it.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Mapping
from typing import Protocol, TypeVar

from optuna.distributions import BaseDistribution, distribution_to_json

from tuner import messages
from tuner.attempt import AttemptId
from tuner.errors import ChannelClosed

_M = TypeVar("_M", bound=messages.Message)

#: A dispatcher that does not answer for this long has an accident; training goes on without it.
VERDICT_TIMEOUT_S = 60.0


class Link(Protocol):
    """What a trial's context needs from whoever runs the study."""

    def report(self, step: int, values: Mapping[str, float], metrics: Mapping[str, float]) -> None:
        """Hands over the values of a step. Never waits for a database."""

    def should_stop(self) -> bool:
        """Whether the trial shall end now: pruned at its last reported step, or told to stop."""

    def suggest(self, name: str, distribution: BaseDistribution) -> messages.Json:
        """The value of a parameter that the study file does not declare."""

    def set_attribute(self, key: str, value: messages.Json) -> None: ...

    def set_constraint(self, key: str, value: float) -> None: ...


class DispatcherLink:
    """A link over the dispatcher's socket.

    Args:
        address: Path of the dispatcher's Unix socket.
        attempt_id: The attempt that this program evaluates.
        token: Shows that the dispatcher launched it.
        assign: The trial, where the launch brought it; None for a program that a worker started,
            which asks for it.

    Raises:
        ChannelClosed: If the dispatcher is not there.
    """

    def __init__(
        self, address: str, attempt_id: AttemptId, token: str, assign: messages.Assign | None
    ) -> None:
        self._attempt_id = attempt_id
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._received = bytearray()
        self._awaited_step: int | None = None
        self.verdict = messages.Verdict(
            attempt_id=attempt_id, step=-1, action=messages.Action.CONTINUE
        )
        try:
            self._socket.connect(address)
        except OSError as error:
            raise ChannelClosed("The dispatcher that launched this trial is gone.") from error
        self.send(
            messages.Hello(
                attempt_id=attempt_id, token=token, pid=os.getpid(), is_worker=assign is not None
            )
        )
        self.assign = assign or self._expect(messages.Assign)

    def send(self, message: messages.FromWorker) -> None:
        """
        Raises:
            ChannelClosed: If the dispatcher is gone.
        """
        try:
            self._socket.sendall(messages.encode(message))
        except OSError as error:
            raise ChannelClosed("The dispatcher that launched this trial is gone.") from error

    def report(self, step: int, values: Mapping[str, float], metrics: Mapping[str, float]) -> None:
        self.send(
            messages.Report(attempt_id=self._attempt_id, step=step, values=values, metrics=metrics)
        )
        self._awaited_step = step
        # A program that never asks must not let verdicts pile up.
        while self._take(self._receive(0.0)):
            pass

    def should_stop(self) -> bool:
        while self._is_undecided():
            if not self._take(self._receive(VERDICT_TIMEOUT_S)):
                break
        while self._take(self._receive(0.0)):
            pass
        return self.verdict.action is not messages.Action.CONTINUE

    def suggest(self, name: str, distribution: BaseDistribution) -> messages.Json:
        """
        Raises:
            ValueError: If the dispatcher refuses, in Optuna's words.
        """
        self.send(
            messages.Suggest(
                attempt_id=self._attempt_id,
                name=name,
                distribution=distribution_to_json(distribution),
            )
        )
        answer = self._expect(messages.Suggested)
        if answer.error:
            raise ValueError(answer.error)
        return answer.value

    def set_attribute(self, key: str, value: messages.Json) -> None:
        self.send(messages.SetAttribute(attempt_id=self._attempt_id, key=key, value=value))

    def set_constraint(self, key: str, value: float) -> None:
        self.send(messages.SetConstraint(attempt_id=self._attempt_id, key=key, value=value))

    def fileno(self) -> int:
        """For `select`: readable when the dispatcher said something or is gone."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def _is_undecided(self) -> bool:
        if self._awaited_step is None or self.verdict.action is not messages.Action.CONTINUE:
            return False
        return self.verdict.step != self._awaited_step

    def _take(self, message: messages.Message | None) -> bool:
        if isinstance(message, messages.Verdict):
            self.verdict = message
        return message is not None

    def _expect(self, kind: type[_M]) -> _M:
        while True:
            message = self._receive(None)
            if isinstance(message, kind):
                return message
            self._take(message)

    def _receive(self, timeout_s: float | None) -> messages.Message | None:
        """The next message, or None when none comes in time."""
        while (end := self._received.find(b"\n")) < 0:
            if not select.select([self._socket], [], [], timeout_s)[0]:
                return None
            try:
                chunk = self._socket.recv(65536)
            except OSError as error:
                raise ChannelClosed("The dispatcher that launched this trial is gone.") from error
            if not chunk:
                raise ChannelClosed("The dispatcher that launched this trial is gone.")
            self._received += chunk
        line = bytes(self._received[: end + 1])
        del self._received[: end + 1]
        return messages.decode(line)
