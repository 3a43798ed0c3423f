"""Runs transactions, and handles outages of the database.

For callers that must not block, transactions run on a thread of their own, each with a timeout. If
one fails for a temporary reason, or times out, the circuit opens: all transactions are refused at
once until the database has answered a probe.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from optuna.exceptions import StorageInternalError
from sqlalchemy import exc

from tuner.errors import EXIT_STUDY_FAILED, StoreError
from tuner.store.connection.driver_errors import problem_of
from tuner.store.connection.patience import await_working_thread

T = TypeVar("T")

Work = Callable[[sa.Connection], T]

_PROBE_EVERY_S = 1.0
#: Number of tries of a transaction after conflicts.
_N_TRIES = 10
#: Seconds after which an idle server connection is dropped without a check: a firewall may have
#: dropped it silently, and its next use would hang for half a minute.
_FORGOTTEN_AFTER_S = 60.0
#: Maximum seconds that a thread stuck in a driver may delay the exit.
_CLOSING_S = 1.0
# A deadlock, or a change that another transaction was quicker with: rolled back as a whole.
_CONFLICT_STATES = ("40001", "40P01")
_CONFLICT_NUMBERS = (1205, 1213, 1020)
#: Errors that are permanent although drivers report them as temporary: the database was replaced.
_LASTING = re.compile(
    r"no such (table|column)|not a database|malformed|readonly database|Unknown (database|column)"
    r"|does(n't| not) exist"
)


class Unavailable(StoreError):
    """The database does not answer now. A retry may succeed later; no data was lost."""


@dataclass(slots=True, kw_only=True)
class _Job(Generic[T]):
    """Something that the thread has to do."""

    task: Callable[[], T]
    #: Free once it has ended. Not an Event, which takes ten times as long to make and to wait for.
    under_way: threading.Lock = field(default_factory=threading.Lock)
    #: Of length 1 after success.
    results: list[T] = field(default_factory=list)
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.under_way.acquire()

    def has_ended_within(self, seconds: float) -> bool:
        """Waits at most this many seconds; after it has returned true, do not call it again."""
        return self.under_way.acquire(timeout=seconds)

    def end(self) -> None:
        """The thread has no more to do with it."""
        self.under_way.release()

    def carry_out(self) -> None:
        try:
            self.results.append(self.task())
        except BaseException as error:  # It is raised where the result is awaited.
            self.error = error


@dataclass(slots=True)
class _Transaction:
    """A running transaction, and its state after an error."""

    #: Whether a commit was sent.
    may_stand: bool = False

    def carry_out(self, connection: sa.Connection, work: Work[T]) -> T:
        with connection.begin() as transaction:
            result = work(connection)
            self.may_stand = True
            transaction.commit()
        return result


class Access:
    """Runs transactions on one database, initially on the caller's own thread.

    Args:
        engine: Engine of the database.
        shown_url: Its URL without a password.
    """

    def __init__(self, engine: sa.Engine, shown_url: str) -> None:
        self.engine = engine
        self._shown_url = shown_url
        self._patience_s: float | None = None
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._is_open = threading.Event()
        self._is_open.set()
        self._is_closing = threading.Event()
        self._reason = ""
        self._thread: threading.Thread | None = None
        #: The own thread's, from one transaction to the next: taking one out of the pool and
        #: giving it back costs as much as a small statement, and on MySQL a ROLLBACK.
        self._kept: sa.Connection | None = None
        self._used_at_s = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the database has answered last time, or a probe since."""
        return self._is_open.is_set()

    def wait_at_most(self, patience_s: float) -> None:
        """From now on works on a thread of its own, for which a caller waits so long."""
        if self._patience_s is None:
            # A daemon: a thread stuck in a driver must not keep the program from exiting.
            self._thread = threading.Thread(target=self._work, name="database", daemon=True)
            self._thread.start()
        self._patience_s = patience_s

    def run(self, work: Work[T]) -> T:
        """Runs a transaction; retries it after a conflict with another.

        Raises:
            Unavailable: If the database does not answer now. The transaction may have been
                committed, or may be later.
            sqlalchemy.exc.SQLAlchemyError: If the database refuses.
        """
        return self.call(lambda: self._transact(work))

    def call(self, task: Callable[[], T]) -> T:
        """The same for something that makes its own transactions."""
        if self._patience_s is None:
            return task()
        if not self.is_open:
            raise self._unavailable()
        job = _Job(task=task)
        self._jobs.put(job)
        if not self._has_ended(job, self._patience_s):
            self._close(f"The database has not answered for {self._patience_s:g} s")
            if not job.has_ended_within(0.0):
                raise self._unavailable()
            self._is_open.set()
        if job.error is None:
            return job.results[0]
        if passing_reason(job.error):
            raise self._unavailable() from job.error
        raise job.error

    def _has_ended(self, job: _Job[T], patience_s: float) -> bool:
        if self.engine.dialect.name == "sqlite":
            return await_working_thread(job.has_ended_within, patience_s)
        return job.has_ended_within(patience_s)

    def move_to(self, engine: sa.Engine) -> None:
        """Switches to another database."""
        self.engine = engine

    def shut(self, reason: str) -> None:
        """Refuses everything from now on: the database must not be used any more."""
        self._is_closing.set()
        self._close(reason)

    def close(self) -> None:
        """Lets every connection go. Safe to call twice."""
        self._is_closing.set()
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join(_CLOSING_S)
        self.engine.dispose()

    def _transact(self, work: Work[T]) -> T:
        n_tries, was_cut = 1, False
        while True:
            transaction = _Transaction()
            try:
                with self._lent() as connection:
                    return transaction.carry_out(connection, work)
            except exc.DBAPIError as error:
                if _is_conflict(error) and n_tries < _N_TRIES:
                    n_tries += 1
                elif error.connection_invalidated and not transaction.may_stand and not was_cut:
                    # Mostly it was closed while it was idle, and a new one works.
                    was_cut = True
                else:
                    raise

    @contextmanager
    def _lent(self) -> Iterator[sa.Connection]:
        """A connection for a transaction; on the own thread always the same, until an error."""
        if threading.current_thread() is not self._thread:
            with self.engine.connect() as connection:
                yield connection
            return
        now_s = time.monotonic()
        is_server = self.engine.dialect.name != "sqlite"
        if is_server and now_s - self._used_at_s > _FORGOTTEN_AFTER_S:
            self._let_go()
            self.engine.dispose()
        self._used_at_s = now_s
        if self._kept is not None and self._kept.engine is not self.engine:
            self._let_go()
        if self._kept is None:
            self._kept = self.engine.connect()
        try:
            yield self._kept
        except BaseException:
            self._let_go()
            raise

    def _let_go(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def _close(self, reason: str) -> None:
        self._reason = reason
        self._is_open.clear()

    def _unavailable(self) -> Unavailable:
        return Unavailable(
            f"{self._reason} (storage {self._shown_url})", exit_code=EXIT_STUDY_FAILED
        )

    # -- on the thread -----------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._work_off()
        finally:
            self._let_go()

    def _work_off(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.carry_out()
            reason = passing_reason(job.error)
            if reason:
                self._close(reason)
            job.end()
            # Also where the caller has lost its patience, and the job has succeeded after all.
            while not self._is_closing.is_set() and not self.is_open:
                self._probe()

    def _probe(self) -> None:
        try:
            with self.engine.begin() as connection:
                if connection.dialect.name == "sqlite":
                    # A lock on the file still allows reads.
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                else:
                    connection.execute(sa.select(1))
        except exc.DBAPIError:
            self._is_closing.wait(_PROBE_EVERY_S)
        else:
            self._is_open.set()


def passing_reason(error: BaseException | None) -> str:
    """Why a database could not be used, if the cause is temporary or can be fixed; else empty."""
    # Optuna's own words are of its commit; the database's are behind them.
    cause = error.__cause__ if isinstance(error, StorageInternalError) else error
    if not isinstance(cause, exc.DBAPIError):
        return ""
    is_passing = isinstance(cause, (exc.OperationalError, exc.InterfaceError)) or (
        cause.connection_invalidated
    )
    return problem_of(cause) if is_passing and not _LASTING.search(str(cause.orig)) else ""


def _is_conflict(error: exc.DBAPIError) -> bool:
    number = next(iter(getattr(error.orig, "args", ())), None)
    return getattr(error.orig, "sqlstate", None) in _CONFLICT_STATES or number in _CONFLICT_NUMBERS
