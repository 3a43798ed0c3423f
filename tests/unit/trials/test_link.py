"""Both links keep one contract: the recording one of these tests, and the one over the socket."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution

from tests.unit.trials.recording_link import ATTEMPT, RecordingLink
from tuner.domain import messages
from tuner.domain.attempt import AttemptId, Outcome
from tuner.domain.messages import Action, Assign, Verdict
from tuner.errors import ChannelClosed
from tuner.trials.worker.link import DispatcherLink
from tuner.trials.worker.port import Link

TOKEN = "secret"
ASSIGN = Assign(
    attempt_id=ATTEMPT,
    trial_number=7,
    attempt_number=2,
    params={"lr": 0.1},
    seed=11,
    checkpoint_dir="checkpoints",
    objectives=("accuracy",),
    devices=("cpu:0",),
)
LR = FloatDistribution(0.0, 1.0)


class OtherEnd:
    """A dispatcher in a thread: keeps what it hears, answers at once, decides as it was told."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "channel")
        self.heard: list[messages.Message] = []
        self.suggestions: dict[str, messages.Json] = {}
        self.action = Action.CONTINUE
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.address)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def decide(self, action: Action) -> None:
        self.action = action

    def tell(self, message: messages.Message) -> None:
        self._connection.sendall(messages.encode(message))

    def leave(self) -> None:
        self._connection.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        self._thread.join(timeout=10)
        self._listener.close()

    def _serve(self) -> None:
        self._connection, _ = self._listener.accept()
        with self._connection, self._connection.makefile("rb") as lines:
            for line in lines:
                message = messages.decode(line)
                self.heard.append(message)
                if answer := self._answer(message):
                    self.tell(answer)

    def _answer(self, message: messages.Message) -> messages.Message | None:
        match message:
            case messages.Hello(is_worker=False):
                return ASSIGN
            case messages.Report(step=step):
                return Verdict(attempt_id=ATTEMPT, step=step, action=self.action)
            case messages.Suggest(name=name) if name in self.suggestions:
                value = self.suggestions[name]
                return messages.Suggested(attempt_id=ATTEMPT, name=name, value=value)
            case messages.Suggest(name=name):
                return messages.Suggested(attempt_id=ATTEMPT, name=name, error="Nobody knows.")
        return None


@pytest.fixture
def other_end() -> Iterator[OtherEnd]:
    # Not tmp_path: a socket's path may have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="link-"))
    other_end = OtherEnd(folder)
    yield other_end
    other_end.join()
    shutil.rmtree(folder)


@pytest.fixture
def connect(other_end: OtherEnd) -> Iterator[Callable[..., DispatcherLink]]:
    links = []

    def connect(assign: Assign | None = ASSIGN) -> DispatcherLink:
        links.append(DispatcherLink(other_end.address, AttemptId("7.2"), TOKEN, assign))
        return links[-1]

    yield connect
    for link in links:
        link.close()


# -- the contract --------------------------------------------------------------------------------

Decide = Callable[[Action], None]


@pytest.fixture(params=["recording", "dispatcher"])
def pair(request: pytest.FixtureRequest) -> tuple[Link, Decide]:
    """A link, and how its other end decides from now on. It suggests lr 0.25 and nothing else."""
    if request.param == "recording":
        recording = RecordingLink(suggestions={"lr": 0.25})
        return recording, recording.decide
    other_end: OtherEnd = request.getfixturevalue("other_end")
    other_end.suggestions = {"lr": 0.25}
    return request.getfixturevalue("connect")(), other_end.decide


def test_nobody_stops_before_a_verdict(pair: tuple[Link, Decide]) -> None:
    link, _ = pair
    assert not link.should_stop()


@pytest.mark.parametrize("action", [Action.PRUNE, Action.STOP])
def test_verdict_on_the_last_report_is_heard(pair: tuple[Link, Decide], action: Action) -> None:
    link, decide = pair
    link.report(1, {"accuracy": 0.5}, {})
    assert not link.should_stop()
    decide(action)
    link.report(2, {"accuracy": 0.5}, {"loss": 1.0})
    assert link.should_stop()
    assert link.should_stop()


def test_parameter_is_suggested(pair: tuple[Link, Decide]) -> None:
    link, _ = pair
    assert link.suggest("lr", LR) == 0.25


def test_refused_parameter_is_a_value_error(pair: tuple[Link, Decide]) -> None:
    link, _ = pair
    with pytest.raises(ValueError, match="Nobody"):
        link.suggest("momentum", LR)


def test_what_needs_no_answer_waits_for_none(pair: tuple[Link, Decide]) -> None:
    link, _ = pair
    link.set_attribute("note", {"a": 1})
    link.set_constraint("memory", 1.0)
    assert not link.should_stop()


# -- the socket ----------------------------------------------------------------------------------


def test_worker_says_hello_and_keeps_its_trial(
    connect: Callable[..., DispatcherLink], other_end: OtherEnd
) -> None:
    link = connect()
    assert link.assign is ASSIGN
    other_end.suggestions = {"lr": 0.5}
    link.suggest("lr", LR)
    hello = other_end.heard[0]
    assert isinstance(hello, messages.Hello)
    assert (hello.attempt_id, hello.token, hello.is_worker) == (ATTEMPT, TOKEN, True)


def test_script_below_a_worker_asks_for_its_trial(
    connect: Callable[..., DispatcherLink], other_end: OtherEnd
) -> None:
    assert connect(None).assign == ASSIGN
    hello = other_end.heard[0]
    assert isinstance(hello, messages.Hello)
    assert not hello.is_worker


def test_end_at_any_step_is_heard_while_waiting_for_another(
    connect: Callable[..., DispatcherLink], other_end: OtherEnd
) -> None:
    link = connect(None)
    other_end.tell(Verdict(attempt_id=ATTEMPT, step=-1, action=Action.STOP, reason="stopped"))
    other_end.suggestions = {"lr": 0.5}
    assert link.suggest("lr", LR) == 0.5
    assert link.standing.reason == "stopped"
    assert link.should_stop()
    assert link.verdict.reason == "stopped"


def test_verdict_on_an_earlier_step_is_not_taken_for_this_one(
    connect: Callable[..., DispatcherLink], other_end: OtherEnd
) -> None:
    link = connect()
    link.report(1, {"accuracy": 0.5}, {})
    other_end.suggestions = {"lr": 0.5}
    link.suggest("lr", LR)  # By now the verdict on step 1 has been read.
    other_end.decide(Action.PRUNE)
    link.report(2, {"accuracy": 0.4}, {})
    assert link.should_stop()
    assert link.verdict.step == 2


@pytest.mark.parametrize("action", [Action.PRUNE, Action.PAUSE, Action.STOP])
def test_end_stays_until_it_is_asked_for_and_after_that(
    connect: Callable[..., DispatcherLink], other_end: OtherEnd, action: Action
) -> None:
    link = connect()
    other_end.decide(action)
    link.report(1, {"accuracy": 0.5}, {})
    other_end.suggestions = {"lr": 0.5}
    link.suggest("lr", LR)  # By now the verdict on step 1 has been read.
    other_end.decide(Action.CONTINUE)
    for step in (2, 3):
        link.report(step, {"accuracy": 0.5}, {})
    assert link.verdict.action is Action.CONTINUE, "the program has not asked yet"
    assert link.should_stop()
    link.report(4, {"accuracy": 0.5}, {})
    assert link.should_stop()
    link.suggest("lr", LR)  # All that was sent is answered.
    assert (link.verdict.step, link.verdict.action) == (1, action)


def test_dispatcher_is_told_once_that_the_program_knows_of_its_end(
    connect: Callable[..., DispatcherLink], other_end: OtherEnd
) -> None:
    link = connect()
    link.report(1, {"accuracy": 0.5}, {})
    assert not link.should_stop()
    other_end.decide(Action.PAUSE)
    link.report(2, {"accuracy": 0.5}, {})
    other_end.suggestions = {"lr": 0.5}
    link.suggest("lr", LR)
    assert not any(isinstance(each, messages.Decided) for each in other_end.heard)
    assert link.should_stop()
    assert link.should_stop()
    link.suggest("lr", LR)
    (decided,) = (each for each in other_end.heard if isinstance(each, messages.Decided))
    assert (decided.count, decided.step, decided.action) == (0, 2, Action.PAUSE)


def test_dispatcher_that_is_gone_is_named(
    connect: Callable[..., DispatcherLink], other_end: OtherEnd
) -> None:
    link = connect(None)
    other_end.leave()
    with pytest.raises(ChannelClosed, match="dispatcher that launched this trial is gone"):
        link.suggest("lr", LR)


def test_dispatcher_that_never_was_is_named(tmp_path: Path) -> None:
    with pytest.raises(ChannelClosed, match="is gone"):
        DispatcherLink(str(tmp_path / "no"), AttemptId("7.2"), TOKEN, ASSIGN)


# -- what is too large, and what cannot be sent now -----------------------------------------------

LARGE = "x" * messages.MAX_LINE_BYTES


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda link: link.set_attribute("weights", LARGE),
            "set_user_attr: the value of 'weights'",
        ),
        (
            lambda link: link.report(
                3, {"accuracy": 1.0}, {f"m{i:0240}": 0.5 for i in range(80_000)}
            ),
            r"report: step 3 with 80,000 extra metrics \(such as 'm0+'\)",
        ),
        (
            lambda link: link.suggest("word", CategoricalDistribution([LARGE])),
            "suggest: the distribution of 'word'",
        ),
    ],
)
def test_message_above_the_limit_is_refused_where_it_is_sent(
    connect: Callable[..., DispatcherLink],
    other_end: OtherEnd,
    call: Callable[[DispatcherLink], object],
    said: str,
) -> None:
    link = connect()
    with pytest.raises(ValueError, match=rf"^{said} takes [\d,]+ bytes as JSON, but the limit is "):
        call(link)
    other_end.suggestions = {"lr": 0.5}
    assert link.suggest("lr", LR) == 0.5


def test_a_long_reason_for_a_failure_is_cut(
    connect: Callable[..., DispatcherLink], other_end: OtherEnd
) -> None:
    link = connect()
    detail = LARGE + "the end"
    link.send(messages.Finished(attempt_id=ATTEMPT, outcome=Outcome.FAILED, detail=detail))
    other_end.suggestions = {"lr": 0.5}
    link.suggest("lr", LR)
    (finished,) = [one for one in other_end.heard if isinstance(one, messages.Finished)]
    assert finished.detail.endswith("the end")


class Sleeper:
    """A dispatcher that is stopped: it accepts, and reads only when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "channel")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.address)
        self._listener.listen()

    def read_to_the_end(self) -> list[messages.Message]:
        connection, _ = self._listener.accept()
        with connection, connection.makefile("rb") as lines:
            return [messages.decode(line) for line in lines]


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    folder = Path(tempfile.mkdtemp(prefix="link-"))
    sleeper = Sleeper(folder)
    yield sleeper
    sleeper._listener.close()
    shutil.rmtree(folder)


@pytest.mark.slow
def test_report_does_not_wait_for_a_dispatcher_that_stands_still(sleeper: Sleeper) -> None:
    link = DispatcherLink(sleeper.address, ATTEMPT, TOKEN, ASSIGN)
    for step in range(20_000):  # A socket takes some 200 kB; before, this never returned.
        link.report(step, {"accuracy": 0.5}, {})
    link.set_attribute("note", "at the end")
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(sleeper.read_to_the_end)
        link.flush()
        link.close()
        heard = reading.result()
    reports = [one for one in heard if isinstance(one, messages.Report)]
    assert [report.step for report in reports] == list(range(20_000))
    assert isinstance(heard[-1], messages.SetAttribute)


def test_of_more_reports_than_memory_shall_hold_the_oldest_are_dropped(
    sleeper: Sleeper, capsys: pytest.CaptureFixture[str]
) -> None:
    link = DispatcherLink(sleeper.address, ATTEMPT, TOKEN, ASSIGN)
    link.set_attribute("note", "at the beginning")
    metrics = {f"metric-{i:0240}": 0.5 for i in range(2_000)}
    for step in range(100):  # 50 MB
        link.report(step, {"accuracy": 0.5}, metrics)
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(sleeper.read_to_the_end)
        link.flush()
        link.close()
        heard = reading.result()
    steps = [one.step for one in heard if isinstance(one, messages.Report)]
    assert steps == sorted(steps)
    assert steps[-1] == 99
    assert 20 < len(steps) < 90
    assert any(isinstance(one, messages.SetAttribute) for one in heard)
    assert f"{100 - len(steps)} reports were dropped" in capsys.readouterr().err


def test_a_fork_does_not_send_what_its_parent_has_not_sent_yet(sleeper: Sleeper) -> None:
    link = DispatcherLink(sleeper.address, ATTEMPT, TOKEN, ASSIGN)
    for step in range(5_000):
        link.report(step, {"accuracy": 0.5}, {})
    if (child := os.fork()) == 0:
        link.flush()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(sleeper.read_to_the_end)
        link.flush()
        link.close()
        heard = reading.result()
    assert len([one for one in heard if isinstance(one, messages.Report)]) == 5_000
