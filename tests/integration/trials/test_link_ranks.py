"""Several ranks of one trial: rank 0 alone is heard, and all decide alike at the same point."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from optuna.distributions import FloatDistribution

import tuner
from tests.unit.trials.recording_link import ATTEMPT
from tests.unit.trials.test_link import ASSIGN, TOKEN
from tuner.domain import messages
from tuner.domain.messages import Action, Decided, Verdict
from tuner.errors import ChannelClosed, RanksDisagree
from tuner.trials import active
from tuner.trials.worker import link as link_module
from tuner.trials.worker.link import DispatcherLink

Link = DispatcherLink
LR = FloatDistribution(0.0, 1.0)


class Group:
    """A dispatcher in threads: answers every rank, and passes on what rank 0 decided."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "channel")
        self.heard: list[messages.Message] = []
        self.action = Action.CONTINUE
        self._newest: Decided | None = None
        self._connections: list[socket.socket] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.address)
        self._listener.listen()

    @contextlib.contextmanager
    def accepting(self) -> Iterator[None]:
        """Serves the connection that is made meanwhile."""
        thread = threading.Thread(target=self._serve_next, daemon=True)
        thread.start()
        self._threads.append(thread)
        yield

    def connect(self, rank: int, world_size: int = 2) -> Link:
        arguments = (self.address, ATTEMPT, TOKEN, ASSIGN)
        with self.accepting():
            return DispatcherLink(*arguments, rank=rank, world_size=world_size)

    def tell_all(self, message: messages.Message) -> None:
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):  # A rank may be gone.
                    connection.sendall(messages.encode(message))

    def leave(self) -> None:
        with self._lock:
            for connection in self._connections:
                connection.shutdown(socket.SHUT_RDWR)

    def heard_of(self, kind: type) -> list[messages.Message]:
        return [message for message in self.heard if isinstance(message, kind)]

    def close(self) -> None:
        self._listener.close()
        for thread in self._threads:
            thread.join(timeout=10)

    def _serve_next(self) -> None:
        connection, _ = self._listener.accept()
        # A rank that leaves before it has read everything resets its connection.
        with (
            contextlib.suppress(ConnectionError),
            connection,
            connection.makefile("rb") as lines,
        ):
            for line in lines:
                message = messages.decode(line)
                self.heard.append(message)
                self._answer(connection, message)

    def _answer(self, connection: socket.socket, message: messages.Message) -> None:
        match message:
            case messages.Hello(is_worker=is_worker):
                self._welcome(connection, needs_assign=not is_worker)
            case messages.Report(step=step):
                # To all, though it is for rank 0 alone.
                self.tell_all(Verdict(attempt_id=ATTEMPT, step=step, action=self.action))
            case Decided():
                self._newest = message
                self.tell_all(message)
            case messages.Suggest(name=name):
                answer = messages.Suggested(attempt_id=ATTEMPT, name=name, value=0.25)
                connection.sendall(messages.encode(answer))

    def _welcome(self, connection: socket.socket, *, needs_assign: bool) -> None:
        with self._lock:
            self._connections.append(connection)
            for message in (ASSIGN if needs_assign else None, self._newest):
                if message:
                    connection.sendall(messages.encode(message))


@pytest.fixture
def group() -> Iterator[Group]:
    # Not tmp_path: a socket's path may have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="ranks-"))
    group = Group(folder)
    yield group
    group.close()
    shutil.rmtree(folder)


@pytest.fixture
def connect(group: Group) -> Iterator[Callable[..., Link]]:
    links = []

    def connect(rank: int, world_size: int = 2) -> Link:
        links.append(group.connect(rank, world_size))
        # Its Hello has been read when this is answered.
        links[-1].suggest("lr", LR)
        return links[-1]

    yield connect
    for link in links:
        link.close()


@pytest.fixture
def ranks(connect: Callable[..., Link]) -> tuple[Link, Link]:
    return connect(0), connect(1)


def _report(step: int, *links: Link) -> None:
    for link in links:
        link.report(step, {"accuracy": 0.5}, {"loss": 1.0})


def test_all_decide_alike(group: Group, ranks: tuple[Link, Link]) -> None:
    main, other = ranks
    for step in (1, 2):
        _report(step, main, other)
        assert (main.should_stop(), other.should_stop()) == (False, False)
    group.action = Action.PRUNE
    _report(3, main, other)
    assert (main.should_stop(), other.should_stop()) == (True, True)
    assert other.verdict == main.verdict
    assert (other.verdict.step, other.verdict.action) == (3, Action.PRUNE)


def test_rank_above_0_waits_for_rank_0(ranks: tuple[Link, Link]) -> None:
    main, other = ranks
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(other.should_stop)
        _report(1, main)
        assert not main.should_stop()
        assert answer.result(timeout=10) is False


def test_end_at_any_step_takes_effect_where_rank_0_asks_next(
    group: Group, ranks: tuple[Link, Link]
) -> None:
    main, other = ranks
    _report(1, main, other)
    assert not main.should_stop()
    group.tell_all(
        Verdict(attempt_id=ATTEMPT, step=-1, action=Action.STOP, reason="the study ends")
    )
    # It is there before rank 1 asks for step 1, where rank 0 went on.
    other.suggest("lr", LR)
    assert not other.should_stop()
    group.action = Action.STOP
    _report(2, main, other)
    assert (main.should_stop(), other.should_stop()) == (True, True)
    assert other.verdict.action is Action.STOP


def test_end_that_was_read_with_a_report_is_told_too(
    group: Group, ranks: tuple[Link, Link]
) -> None:
    main, other = ranks
    stop = Verdict(attempt_id=ATTEMPT, step=-1, action=Action.STOP, reason="the study ends")
    group.tell_all(stop)
    main.suggest("lr", LR)
    assert main.standing == stop
    assert (main.should_stop(), other.should_stop()) == (True, True)
    assert (other.verdict.action, other.verdict.reason) == (Action.STOP, "the study ends")


def test_end_at_an_earlier_step_is_heard_by_all_where_they_ask(
    group: Group, ranks: tuple[Link, Link]
) -> None:
    main, other = ranks
    group.action = Action.PAUSE
    _report(1, main, other)
    main.suggest("lr", LR)  # By now the verdict on step 1 has been read.
    group.action = Action.CONTINUE
    for step in (2, 3):
        _report(step, main, other)
    assert (main.should_stop(), other.should_stop()) == (True, True)
    (decided,) = group.heard_of(Decided)
    assert (decided.count, decided.step, decided.action) == (1, 3, Action.PAUSE)


def test_end_is_told_once_and_stays(group: Group, ranks: tuple[Link, Link]) -> None:
    main, other = ranks
    group.action = Action.PRUNE
    _report(1, main, other)
    assert (main.should_stop(), other.should_stop()) == (True, True)
    group.action = Action.CONTINUE
    _report(2, main)
    for _ in range(2):
        assert (main.should_stop(), other.should_stop()) == (True, True)
    main.suggest("lr", LR)
    (decided,) = group.heard_of(Decided)
    assert decided == Decided(attempt_id=ATTEMPT, count=1, step=1, action=Action.PRUNE)


def test_rank_above_0_is_silent(group: Group, ranks: tuple[Link, Link]) -> None:
    main, other = ranks
    other.set_attribute("note", 1)
    other.set_constraint("memory", 1.0)
    _report(1, other)
    assert other.suggest("lr", LR) == 0.25
    main.suggest("lr", LR)
    told = (messages.Report, messages.SetAttribute, messages.SetConstraint)
    assert not any(isinstance(message, told) for message in group.heard)
    hellos = group.heard_of(messages.Hello)
    assert [hello.rank for hello in hellos] == [0, 1]  # type: ignore[union-attr]


def test_rank_that_does_not_report_decides_too(group: Group, ranks: tuple[Link, Link]) -> None:
    main, other = ranks
    group.action = Action.PRUNE
    _report(4, main)
    assert (main.should_stop(), other.should_stop()) == (True, True)


def test_nothing_reported_is_nothing_to_disagree_on(ranks: tuple[Link, Link]) -> None:
    main, other = ranks
    assert (main.should_stop(), other.should_stop()) == (False, False)


@pytest.mark.parametrize(
    ("main_step", "words"), [(1, "rank 0 is at step 1"), (None, "rank 0 has reported nothing")]
)
def test_other_step_than_rank_0_is_refused(
    ranks: tuple[Link, Link], main_step: int | None, words: str
) -> None:
    main, other = ranks
    if main_step is not None:
        _report(main_step, main)
    main.should_stop()
    _report(2, other)
    with pytest.raises(RanksDisagree, match=rf"Rank 1 .* at step 2, but {words}\. Call report"):
        other.should_stop()


def test_rank_that_asks_later_catches_up(group: Group, ranks: tuple[Link, Link]) -> None:
    main, other = ranks
    for step in (1, 2, 3):
        group.action = Action.PRUNE if step == 3 else Action.CONTINUE
        _report(step, main)
        main.should_stop()
    assert [other.should_stop() for _ in range(3)] == [False, False, True]


def test_rank_that_connects_late_hears_the_newest_decision(
    group: Group, connect: Callable[..., Link]
) -> None:
    main = connect(0)
    for step in (1, 2):
        _report(step, main)
        main.should_stop()
    other = connect(1)
    assert [other.should_stop(), other.should_stop()] == [False, False]
    group.action = Action.PRUNE
    _report(3, main, other)
    assert (main.should_stop(), other.should_stop()) == (True, True)


def test_rank_that_never_asks_keeps_only_so_many_decisions(
    group: Group, ranks: tuple[Link, Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    main, _ = ranks
    monkeypatch.setattr(link_module, "N_DECISIONS_KEPT", 2)
    other = group.connect(1)
    for step in (1, 2, 3, 4):
        group.action = Action.PRUNE if step == 4 else Action.CONTINUE
        _report(step, main)
        main.should_stop()
    assert [other.should_stop() for _ in range(4)] == [False, False, False, True]
    other.close()


def test_closed_connection_ends_the_wait(group: Group, ranks: tuple[Link, Link]) -> None:
    _, other = ranks
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(other.should_stop)
        group.leave()
        with pytest.raises(ChannelClosed, match="dispatcher that launched this trial is gone"):
            answer.result(timeout=10)


def test_minder_of_a_rank_hears_verdicts_itself(group: Group, connect: Callable[..., Link]) -> None:
    main = connect(0)
    minder = connect(1, world_size=1)
    minder.suggest("lr", LR)  # Its answer shows that the group knows it.
    group.action = Action.PRUNE
    _report(1, main)
    main.should_stop()
    minder.suggest("lr", LR)
    assert minder.should_stop()


def test_scripts_on_all_ranks_are_pruned_at_the_same_step(
    group: Group, connect: Callable[..., Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    main = connect(0)
    monkeypatch.setattr(active, "context", None)
    environment = {"TUNER_CHANNEL": group.address, "TUNER_ATTEMPT": ATTEMPT, "TUNER_TOKEN": TOKEN}
    for name, value in {**environment, "RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with group.accepting():
        script = tuner.current()
    assert script.number == ASSIGN.trial_number
    hello = group.heard_of(messages.Hello)[-1]
    assert isinstance(hello, messages.Hello)
    assert (hello.rank, hello.is_worker) == (1, False)
    group.action = Action.PRUNE
    _report(1, main)
    script.report(0.4, step=1)
    assert (main.should_stop(), script.should_prune()) == (True, True)


def test_single_rank_tells_no_decisions(group: Group, connect: Callable[..., Link]) -> None:
    link = connect(0, world_size=1)
    _report(1, link)
    assert not link.should_stop()
    link.suggest("lr", LR)
    assert group.heard_of(Decided) == []
