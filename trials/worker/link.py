"""The link of a program that evaluates a trial to the dispatcher: one socket, no threads.

No thread reads the socket, so that training code may fork (data loaders do) at any time. Messages
from the dispatcher are read when the program calls a method.

If several ranks evaluate a trial, only rank 0 reports and receives verdicts. It sends its decision,
the dispatcher forwards that, and the other ranks act on it at the same point.
"""

from __future__ import annotations

import os
import select
import socket
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tuner.domain import messages
from tuner.domain.attempt import AttemptId
from tuner.errors import ChannelClosed, MessageTooLarge, RanksDisagree
from tuner.host.clock import since_boot_s
from tuner.launch.failure_diagnosis import readable
from tuner.trials.worker.outbox import Outbox
from tuner.trials.worker.termination import REASON, Termination

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_IS_GONE = "The dispatcher that launched this trial is gone."
_M = TypeVar("_M", bound=messages.Message)

#: A dispatcher that does not answer for this long has an accident; training continues without it.
VERDICT_TIMEOUT_S = 60.0
#: Decisions kept for a rank that checks later than rank 0, or never.
N_DECISIONS_KEPT = 1000


class DispatcherLink:
    """A link over the dispatcher's socket.

    Args:
        address: Path of the dispatcher's Unix socket.
        attempt_id: The attempt that this program evaluates.
        token: Proves that the dispatcher launched it.
        assign: The trial, if the launch request contained it; None for a program that a worker
            started, which requests it.
        rank: Rank of this process in the trial.
        world_size: Number of ranks that check verdicts; with 1 this one receives its own, whatever
            its rank is.
        termination: Knows whether another program sent this process a SIGTERM; None if this is not
            checked.

    Raises:
        ChannelClosed: If the dispatcher is gone.
    """

    def __init__(
        self,
        address: str,
        attempt_id: AttemptId,
        token: str,
        assign: messages.Assign | None,
        *,
        rank: int = 0,
        world_size: int = 1,
        termination: Termination | None = None,
    ) -> None:
        self._attempt_id = attempt_id
        self._termination = termination
        self._rank = rank
        self._leads = world_size > 1 and rank == 0
        self._follows = world_size > 1 and rank > 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._outbox = Outbox(self._socket)
        self._received = bytearray()
        self._awaited_step: int | None = None
        self._n_asked = 0
        self._decisions: deque[messages.Decided] = deque(maxlen=N_DECISIONS_KEPT)
        self._has_decided_to_end = False
        #: Step of the newest verdict received.
        self._judged_step = -1
        nothing_yet = messages.Verdict(
            attempt_id=attempt_id, step=-1, action=messages.Action.CONTINUE
        )
        #: The verdict that applies: the first one that requests an end stays.
        self.standing = nothing_yet
        #: The verdict that the program last saw.
        self.verdict = nothing_yet
        with _dispatcher_there():
            self._socket.connect(address)
        self.send(
            messages.Hello(
                attempt_id=attempt_id,
                token=token,
                pid=os.getpid(),
                is_worker=assign is not None,
                rank=rank,
                since_boot_s=since_boot_s(),
            )
        )
        self.assign = assign or self._expect(messages.Assign)

    def send(self, message: messages.FromWorker) -> None:
        """Sends a message and all that waited before it, however long that takes.

        Raises:
            ChannelClosed: If the dispatcher is gone.
            MessageTooLarge: If the dispatcher would refuse it.
        """
        if isinstance(message, messages.Finished):
            # The user's own text, such as an exception's message, may have any length.
            message = replace(message, detail=readable(message.detail))
        self._post(message)
        self.flush()

    def flush(self) -> None:
        """Waits until all that was reported is sent.

        Raises:
            ChannelClosed: If the dispatcher is gone.
        """
        with _dispatcher_there():
            self._outbox.send_all()

    def send_ready(self) -> None:
        """Sends as much as possible without blocking.

        Raises:
            ChannelClosed: If the dispatcher is gone.
        """
        with _dispatcher_there():
            self._outbox.send_ready()

    def finish(self, finished: messages.Finished) -> None:
        """Sends the final message of this rank.

        Raises:
            ChannelClosed: If the dispatcher is gone.
        """
        self.send(replace(finished, rank=self._rank, since_boot_s=since_boot_s()))

    def report(self, step: int, values: Mapping[str, float], metrics: Mapping[str, float]) -> None:
        """Reports the values of a step; a rank above 0 only records its step.

        Never blocks. If the dispatcher does not read, messages are buffered and sent with a later
        call; see `tuner.trials.worker.outbox` for the limit.

        Raises:
            MessageTooLarge: If the dispatcher would refuse it.
        """
        if not self._follows:
            self._post(
                messages.Report(
                    attempt_id=self._attempt_id, step=step, values=values, metrics=metrics
                )
            )
        self._awaited_step = step
        # Messages must not pile up for a program that never checks.
        self._take_all()

    def should_stop(self) -> bool:
        """Whether the trial must end now; the n-th call returns the same on every rank.

        A rank above 0 waits until rank 0 has made as many calls, without a limit.

        Raises:
            RanksDisagree: If this rank has reported another step than rank 0.
            ChannelClosed: If the dispatcher is gone.
        """
        if self._has_decided_to_end:
            return True
        if self._leads or self._follows:
            self._decide_together()
        else:
            self._hear_verdict()
            if self._is_told_to_end:
                self._tell_decision(count=0)
        self._has_decided_to_end = self._is_told_to_end
        return self._is_told_to_end

    def hear(self) -> messages.Verdict:
        """The current verdict, without blocking; used to end a program that does not check."""
        self._take_all()
        return self.standing

    def confirm_end(self) -> None:
        """Notifies the dispatcher that a program which does not check is being ended."""
        self.verdict = self.standing
        self._tell_decision(count=0)

    def suggest(self, name: str, distribution: BaseDistribution) -> messages.Json:
        """Requests a parameter.

        Raises:
            ValueError: If the dispatcher refuses, with Optuna's message.
        """
        text = _as_json(distribution)
        self.send(messages.Suggest(attempt_id=self._attempt_id, name=name, distribution=text))
        answer = self._expect(messages.Suggested)
        if answer.error:
            raise ValueError(answer.error)
        return answer.value

    def range_in_code(self, name: str, distribution: BaseDistribution) -> None:
        if not self._follows:
            text = _as_json(distribution)
            found = messages.RangeInCode(attempt_id=self._attempt_id, name=name, distribution=text)
            self._post(found)

    def study_place(self) -> messages.StudyPlace:
        """Asks the dispatcher, on any rank.

        Raises:
            ChannelClosed: If the dispatcher is gone.
        """
        self.send(messages.AskStudy(attempt_id=self._attempt_id))
        return self._expect(messages.StudyPlace)

    def stop_study(self) -> None:
        self.send(messages.StopStudy(attempt_id=self._attempt_id))

    def states_damaged(self, paths: Sequence[Path], step: int | None) -> None:
        if not self._follows:
            self._post(
                messages.StatesDamaged(
                    attempt_id=self._attempt_id,
                    paths=tuple(map(str, paths)),
                    resumed_from=step,
                )
            )

    def remark(self, topic: messages.RemarkTopic, text: str) -> None:
        """Shows a note on this trial's reports. Each topic is shown once."""
        if not self._follows:
            remark = messages.Remark(attempt_id=self._attempt_id, topic=topic, text=text)
            self._post(remark)

    def set_attribute(self, key: str, value: messages.Json) -> None:
        """Sets a user attribute.

        Raises:
            TypeError: If the value is not valid JSON.
            MessageTooLarge: If the dispatcher would refuse it.
        """
        if self._follows:
            return
        try:
            self._post(messages.SetAttribute(attempt_id=self._attempt_id, key=key, value=value))
        except TypeError as error:
            raise TypeError(
                f"set_user_attr: {key!r} is {value!r:.80}, which JSON cannot hold ({error}). Give "
                "text, numbers, lists or dicts of them, such as float(value) or str(value)."
            ) from None

    def set_constraint(self, key: str, value: float) -> None:
        if not self._follows:
            self._post(messages.SetConstraint(attempt_id=self._attempt_id, key=key, value=value))

    def _post(self, message: messages.FromWorker) -> None:
        """Sends as much as fits now; the rest follows with a later call."""
        line = messages.encode(message)
        if len(line) > messages.MAX_LINE_BYTES:
            raise MessageTooLarge(
                f"{_subject(message)} takes {len(line):,} bytes as JSON, but the limit is "
                f"{messages.MAX_LINE_BYTES:,} bytes. Write what is large to a file in "
                "trial.checkpoint_dir, and keep the file's name here."
            )
        with _dispatcher_there():
            self._outbox.post(line, is_report=isinstance(message, messages.Report))

    @property
    def is_termination_requested(self) -> bool:
        """Whether this process got a SIGTERM that the dispatcher did not send."""
        return self._termination is not None and self._termination.is_requested

    def fileno(self) -> int:
        """For `select`: readable when a message has arrived or the dispatcher is gone."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    @property
    def _is_told_to_end(self) -> bool:
        return self.verdict.action is not messages.Action.CONTINUE

    def _decide_together(self) -> None:
        self._n_asked += 1
        if self._follows:
            self._hear_decision()
        else:
            self._hear_verdict()
            self._tell_decision(count=self._n_asked)

    def _hear_verdict(self) -> None:
        while self._is_undecided():
            if not self._take(self._receive(VERDICT_TIMEOUT_S)):
                break
        self._take_all()
        self.verdict = self.standing
        if self.is_termination_requested and not self._is_told_to_end:
            step = -1 if self._awaited_step is None else self._awaited_step
            self.verdict = messages.Verdict(
                attempt_id=self._attempt_id,
                step=step,
                action=messages.Action.STOP,
                reason=REASON,
            )

    def _is_undecided(self) -> bool:
        is_known = self.standing.action is not messages.Action.CONTINUE
        if self._awaited_step is None or is_known or self.is_termination_requested:
            return False
        return self._judged_step != self._awaited_step

    def _tell_decision(self, count: int) -> None:
        verdict = self.verdict
        self._post(
            messages.Decided(
                attempt_id=self._attempt_id,
                count=count,
                step=-1 if self._awaited_step is None else self._awaited_step,
                action=verdict.action,
                reason=verdict.reason,
            )
        )

    def _hear_decision(self) -> None:
        while not self._decisions or self._decisions[0].count < self._n_asked:
            if self._decisions:
                self._decisions.popleft()
            else:
                self._take(self._receive(None))
        decided = self._decisions[0]
        # A rank that connects late may hear the newest decision only. Rank 0 tells nothing after
        # an end, so that all before the newest were to continue.
        if decided.count == self._n_asked:
            self._refuse_other_step(decided.step)
            self.verdict = messages.Verdict(
                attempt_id=self._attempt_id,
                step=decided.step,
                action=decided.action,
                reason=decided.reason,
            )

    def _refuse_other_step(self, step: int) -> None:
        if self._awaited_step in (None, step):
            return
        of_rank_0 = "has reported nothing" if step < 0 else f"is at step {step}"
        raise RanksDisagree(
            f"Rank {self._rank} asks whether to stop at step {self._awaited_step}, but rank 0 "
            f"{of_rank_0}. Call report and should_prune equally often and at the same steps on "
            "every rank, not only where trial.is_main; what rank 0 reports counts."
        )

    def _take_all(self) -> None:
        """Reads all available messages, without blocking."""
        while self._take(self._receive(0.0)):
            pass

    def _take(self, message: messages.Message | None) -> bool:
        match message:
            case messages.Verdict() if not self._follows:
                self._judged_step = message.step
                if self.standing.action is messages.Action.CONTINUE:
                    self.standing = message
            case messages.Decided() if self._follows:
                self._decisions.append(message)
        return message is not None

    def _expect(self, kind: type[_M]) -> _M:
        while True:
            message = self._receive(None)
            if isinstance(message, kind):
                return message
            self._take(message)

    def _receive(self, timeout_s: float | None) -> messages.Message | None:
        """The next message, or None if none arrives in time."""
        while (end := self._received.find(b"\n")) < 0:
            # What the dispatcher shall answer may still be waiting to be sent.
            unsent = [self._socket] if self._outbox else []
            readable_now, writable, _ = select.select([self._socket], unsent, [], timeout_s)
            if writable:
                self.send_ready()
            elif not readable_now:
                return None
            if not readable_now:
                continue
            with _dispatcher_there():
                chunk = self._socket.recv(65536)
            if not chunk:
                raise ChannelClosed(_IS_GONE)
            self._received += chunk
        line = bytes(self._received[: end + 1])
        del self._received[: end + 1]
        return messages.decode(line)


@contextmanager
def _dispatcher_there() -> Iterator[None]:
    """An error of the socket means that the dispatcher is gone."""
    try:
        yield
    except OSError as error:
        raise ChannelClosed(_IS_GONE) from error


def _subject(message: messages.FromWorker) -> str:
    """The subject of a message, as the call that sends it."""
    match message:
        case messages.SetAttribute(key=messages.RETURNED_PARAMS_ATTR):
            return (
                "search_space: what the function returned in addition to the suggested parameters"
            )
        case messages.SetAttribute(key=key):
            return f"set_user_attr: the value of {key!r}"
        case messages.SetConstraint(key=key):
            return f"set_constraint: the key {key[:100]!r}"
        case messages.Report(step=step, metrics=metrics):
            named = f" (such as {next(iter(metrics))[:100]!r})" if metrics else ""
            return f"report: step {step} with {len(metrics):,} extra metrics{named}"
        case messages.Suggest(name=name):
            return f"suggest: the distribution of {name[:100]!r}"
    return f"{type(message).__name__}: the message"


def _as_json(distribution: BaseDistribution) -> str:
    # Who has a distribution has imported Optuna; a command's process never does.
    from optuna.distributions import distribution_to_json

    return distribution_to_json(distribution)
