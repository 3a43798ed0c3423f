"""How many reports one dispatcher takes in, judges and stores in a second: 3 of 6."""

import argparse
import functools
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.common.systems import ROOT
from benchmarks.database.rig import build_dispatcher, opened, unseen_view
from benchmarks.database.servers import KINDS, SQLITE, new_database
from benchmarks.database.stored import make_study
from tuner.domain.attempt import AttemptId
from tuner.domain.messages import Report
from tuner.host.clock import SystemClock
from tuner.launch.channel import ChannelServer
from tuner.launch.inbox import Event, Inbox, Received, WorkerExited
from tuner.launch.request import ENV_TOKEN, LaunchRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Reports in a second, median and range of the seconds that were counted."""

    database: str
    n_slots: int
    n_stored: int
    n_reports_of_a_trial: int
    n_seconds: int
    per_s: float
    lowest_per_s: float
    highest_per_s: float
    #: Of the dispatcher's process, all threads.
    cpu_us_of_a_report: float
    #: The part of one core that each of the processes took that play workers.
    clients_cpu: float
    load_before: float


class Enough(Exception):
    """It was counted for as long as asked."""


class ChattingWorkers:
    """A launcher that starts nothing: workers are played by processes that are there already.

    Args:
        inbox: Where exits go.
        channel: Where the workers connect to.
        n_clients: Processes that play them, in turn.
        n_reports: Of each trial.
    """

    def __init__(
        self, inbox: Inbox, channel: ChannelServer, *, n_clients: int, n_reports: int
    ) -> None:
        self._channel = channel
        self._controls: list[socket.socket] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._unread = b""
        for _ in range(n_clients):
            ours, theirs = socket.socketpair()
            words = ["-m", "benchmarks.database.chatter", str(theirs.fileno()), str(n_reports)]
            process = subprocess.Popen(
                [sys.executable, *words], pass_fds=[theirs.fileno()], cwd=ROOT
            )
            theirs.close()
            self._controls.append(ours)
            self._processes.append(process)
            inbox.watch(ours, functools.partial(self._read_exits, ours))
        self._turns = itertools.cycle(range(n_clients))

    def launch(self, requests: Sequence[LaunchRequest]) -> tuple[int, ...]:
        (request,) = requests
        turn = next(self._turns)
        token = request.environment[ENV_TOKEN]
        line = f"{request.attempt_id} {token} {self._channel.address}\n"
        self._controls[turn].sendall(line.encode())
        return (self._processes[turn].pid,)

    def free_port(self) -> int:
        return 0

    def terminate(self, attempt_id: AttemptId) -> None: ...

    def kill(self, attempt_id: AttemptId) -> None: ...

    def cpu_s(self) -> float:
        """Processor time of the processes so far."""
        ticks = [_cpu_ticks(process.pid) for process in self._processes]
        return sum(ticks) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        for control in self._controls:
            control.close()
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()

    def _read_exits(self, control: socket.socket) -> Iterable[Event]:
        lines = control.recv(65536)
        while lines and not lines.endswith(b"\n"):
            lines += control.recv(65536)
        for line in lines.decode().splitlines():
            yield WorkerExited(attempt_id=AttemptId(line), exit_code=0)


class CountingInbox:
    """Counts the reports of each second, and raises `Enough` in the end.

    Args:
        inner: The inbox itself.
        n_warm_up: Seconds that are not counted.
        n_seconds: Seconds that are.
    """

    def __init__(
        self, inner: Inbox, workers: ChattingWorkers, *, n_warm_up: int, n_seconds: int
    ) -> None:
        self._inner = inner
        self._workers = workers
        self._n_warm_up, self._n_seconds = n_warm_up, n_seconds
        self._n_looks = self._n = 0
        self._since_s = time.perf_counter()
        self.rates: list[float] = []
        self.n_counted = 0
        self.wall_s = self.cpu_s = self.clients_cpu_s = 0.0

    def drain(self, timeout_s: float) -> Sequence[Event]:
        # The reports of the round before are judged and answered by now.
        if time.perf_counter() - self._since_s >= 1.0:
            self._look()
        events = self._inner.drain(timeout_s)
        for event in events:
            if isinstance(event, Received) and isinstance(event.message, Report):
                self._n += 1
        return events

    def _look(self) -> None:
        now_s = time.perf_counter()
        if self._n_looks == self._n_warm_up:
            self.cpu_s, self.clients_cpu_s = -time.process_time(), -self._workers.cpu_s()
        elif self._n_looks > self._n_warm_up:
            self.rates.append(self._n / (now_s - self._since_s))
            self.n_counted += self._n
            self.wall_s += now_s - self._since_s
        self._n_looks, self._n, self._since_s = self._n_looks + 1, 0, now_s
        if len(self.rates) == self._n_seconds:
            self.cpu_s += time.process_time()
            self.clients_cpu_s += self._workers.cpu_s()
            raise Enough


def measure(args: argparse.Namespace, server_url: str | None) -> Iterator[Rate]:
    for database in args.databases:
        with new_database(database, server_url) as url:
            make_study(url, args.stored, args.reports)
            rate = count(url, database, args)
        print(f"{database}: {rate.per_s:.0f} reports/s", file=sys.stderr, flush=True)
        yield rate


def count(url: str, database: str, args: argparse.Namespace) -> Rate:
    clock, load_before = SystemClock(), os.getloadavg()[0]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-database-"))
        study = stack.enter_context(opened(url, clock, n_slots=args.slots))
        inbox = stack.enter_context(closing(Inbox()))
        channel = stack.enter_context(closing(ChannelServer(inbox, Path(folder))))
        workers = ChattingWorkers(inbox, channel, n_clients=args.clients, n_reports=args.reports)
        stack.callback(workers.close)
        counting = CountingInbox(inbox, workers, n_warm_up=args.warm_up, n_seconds=args.seconds)
        dispatcher = build_dispatcher(
            study,
            folder=Path(folder),
            n_slots=args.slots,
            n_trials=None,
            launcher=workers,
            channel=channel,
            view=stack.enter_context(unseen_view()),
            clock=clock,
        )
        with suppress(Enough):
            dispatcher.run(counting)
    return Rate(
        database=database,
        n_slots=args.slots,
        n_stored=args.stored,
        n_reports_of_a_trial=args.reports,
        n_seconds=len(counting.rates),
        per_s=median(counting.rates),
        lowest_per_s=min(counting.rates),
        highest_per_s=max(counting.rates),
        cpu_us_of_a_report=counting.cpu_s / counting.n_counted * 1e6,
        clients_cpu=counting.clients_cpu_s / counting.wall_s / args.clients,
        load_before=load_before,
    )


def table(rates: Sequence[Rate]) -> str:
    lines = [
        "| database | slots | stored trials | reports a second, median | range "
        "| processor time of a report |",
        "|---|---|---|---|---|---|",
    ]
    for one in rates:
        lines.append(
            f"| {one.database} | {one.n_slots} | {one.n_stored:,} | {one.per_s:,.0f} "
            f"| {one.lowest_per_s:,.0f} to {one.highest_per_s:,.0f} "
            f"| {one.cpu_us_of_a_report:.0f} us |"
        )
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--databases", nargs="+", choices=KINDS, default=[SQLITE])
    add("--slots", type=int, default=64, help="workers at once")
    add("--stored", type=int, default=400, help="trials in the study, which the pruner looks at")
    add("--reports", type=int, default=100, help="of each trial")
    add("--clients", type=int, default=2, help="processes that play the workers")
    add("--warm-up", type=int, default=3, help="seconds that are not counted")
    add("--seconds", type=int, default=30, help="seconds that are counted, one by one")


def _cpu_ticks(pid: int) -> int:
    # After the name, which may hold anything: state, then eleven fields to utime and stime.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
