"""What many dispatchers with devices of their own ask of one PostgreSQL, as seen by it: 6 of 6."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

import psutil
import sqlalchemy as sa

from benchmarks.common.systems import ROOT
from benchmarks.database.servers import POSTGRESQL, new_database
from benchmarks.database.stored import open_search
from tuner.store.connection.database import open_database, parse_url

MAX_CONNECTIONS = 1000
_LOOK_EVERY_S = 0.1
#: Named in a row of the table.
_N_TABLES = 3
_CLAIMED = "SELECT count(*) FROM tuner_attempts"
_RUNNING = "SELECT count(*) FROM tuner_attempts WHERE state = 'running'"
_SERVER = """
    SELECT sum(xact_commit), sum(tup_returned), sum(tup_fetched),
           sum(tup_inserted + tup_updated + tup_deleted)
    FROM pg_stat_database WHERE datname = current_database()
"""
#: Rows of each table: those of scans of all of it, and those that an index has found.
_TABLES = """
    SELECT relname, coalesce(seq_tup_read, 0), coalesce(idx_tup_fetch, 0)
    FROM pg_stat_user_tables
"""
#: Backends of clients: all, those that do something, those of them that wait for a row or a lock.
_BACKENDS = """
    SELECT count(*), count(*) FILTER (WHERE state = 'active'),
           count(*) FILTER (WHERE state = 'active' AND wait_event_type = 'Lock')
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What so many dispatchers asked of the server, by the second."""

    dispatchers: int
    devices: int
    trial_s: float
    measured_s: float
    #: Attempts that were begun; the devices allow no more than `wanted_per_s`.
    claims_per_s: float
    wanted_per_s: float
    connections: int
    commits_per_s: float
    rows_read_per_s: float
    rows_written_per_s: float
    #: Processor seconds by the second: of the server, of all dispatchers.
    server_cores: float
    dispatcher_cores: float
    #: Backends at work at a time, and those of them that waited for another one's lock.
    active: float
    waiting: float
    #: The tables of which most rows were read, by the second: in scans of all of it, by an index.
    most_read: dict[str, tuple[float, float]]
    load_before: float


def measure(args: argparse.Namespace, server_url: str) -> Iterator[Load]:
    """One number of dispatchers after the other, each on a database of its own."""
    for n_dispatchers in args.dispatchers:
        with new_database(POSTGRESQL, server_url) as url:
            load = run_once(url, n_dispatchers, args)
        print(f"{n_dispatchers}: {load.claims_per_s:.1f} claims/s", file=sys.stderr, flush=True)
        yield load


def run_once(url: str, n_dispatchers: int, args: argparse.Namespace) -> Load:
    """Starts them all, waits until they work, and looks at the server for a while."""
    load_before = os.getloadavg()[0]
    with closing(open_database(url)) as database:
        assert open_search(database).study_id
    engine = sa.create_engine(parse_url(url), isolation_level="AUTOCOMMIT")
    with ExitStack() as stack:
        stack.callback(engine.dispose)
        connection = stack.enter_context(engine.connect())
        processes = []
        for first in range(0, n_dispatchers, args.together):
            count = min(args.together, n_dispatchers - first)
            process = _start(url, first, count, args)
            stack.callback(_end, process)
            processes.append(process)
        _await_full(connection, n_dispatchers * args.devices, processes, args.limit)
        time.sleep(args.settle)
        return _watch(connection, processes, n_dispatchers, args, load_before)


def _start(url: str, first: int, count: int, args: argparse.Namespace) -> subprocess.Popen[bytes]:
    numbers = (first, count, args.devices, args.trial)
    words = [sys.executable, "-m", "benchmarks.database.hosted", url, *map(str, numbers)]
    env: Mapping[str, str] = {**os.environ, "PYTHONWARNINGS": "ignore"}
    return subprocess.Popen(words, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _await_full(
    connection: sa.Connection,
    n_devices: int,
    processes: Sequence[subprocess.Popen[bytes]],
    limit_s: float,
) -> None:
    """Until nine in ten devices have a trial: between two trials a device has none."""
    give_up_at_s = time.monotonic() + limit_s
    while _number(connection, _RUNNING) < 0.9 * n_devices:
        if any(each.poll() is not None for each in processes):
            raise SystemExit("A process of dispatchers has ended.")
        if time.monotonic() > give_up_at_s:
            raise SystemExit(f"Not all devices had a trial after {limit_s:g} s.")
        time.sleep(1.0)


def _watch(
    connection: sa.Connection,
    processes: Sequence[subprocess.Popen[bytes]],
    n_dispatchers: int,
    args: argparse.Namespace,
    load_before: float,
) -> Load:
    began_s = time.monotonic()
    server = _server_of(connection)
    before, tables_before = _figures(connection, server, processes), _tables(connection)
    looks = []
    while time.monotonic() < began_s + args.seconds:
        looks.append(connection.exec_driver_sql(_BACKENDS).one())
        time.sleep(_LOOK_EVERY_S)
    # The statistics of backends are up to a second old.
    time.sleep(1.0)
    after, tables = _figures(connection, server, processes), _tables(connection)
    seconds = time.monotonic() - began_s
    rate = [(new - old) / seconds for new, old in zip(after, before, strict=True)]
    claims, commits, returned, fetched, written, server_cores, dispatcher_cores = rate
    return Load(
        dispatchers=n_dispatchers,
        devices=args.devices,
        trial_s=args.trial,
        measured_s=seconds,
        claims_per_s=claims,
        wanted_per_s=n_dispatchers * args.devices / args.trial,
        connections=max(each[0] for each in looks),
        commits_per_s=commits,
        rows_read_per_s=returned + fetched,
        rows_written_per_s=written,
        server_cores=server_cores,
        dispatcher_cores=dispatcher_cores,
        active=sum(each[1] for each in looks) / len(looks),
        waiting=sum(each[2] for each in looks) / len(looks),
        most_read=_most_read(tables_before, tables, seconds),
        load_before=load_before,
    )


def _tables(connection: sa.Connection) -> dict[str, tuple[int, int]]:
    return {name: (scanned, found) for name, scanned, found in connection.exec_driver_sql(_TABLES)}


def _most_read(
    before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]], seconds: float
) -> dict[str, tuple[float, float]]:
    rates = {
        name: ((scanned - before[name][0]) / seconds, (found - before[name][1]) / seconds)
        for name, (scanned, found) in after.items()
    }
    names = sorted(rates, key=lambda name: -sum(rates[name]))
    return {name: rates[name] for name in names[:_N_TABLES]}


def _figures(
    connection: sa.Connection,
    server: psutil.Process,
    processes: Sequence[subprocess.Popen[bytes]],
) -> list[float]:
    rows = connection.exec_driver_sql(_SERVER).one()
    return [
        float(_number(connection, _CLAIMED)),
        *map(float, rows),
        _cpu_s(server, *server.children(recursive=True)),
        _cpu_s(*(psutil.Process(each.pid) for each in processes)),
    ]


def _server_of(connection: sa.Connection) -> psutil.Process:
    """The process whose children the backends are."""
    pid = _number(connection, "SELECT pg_backend_pid()")
    parent = psutil.Process(pid).parent()
    assert parent is not None
    return parent


def _cpu_s(*processes: psutil.Process) -> float:
    return sum(times.user + times.system for times in (each.cpu_times() for each in processes))


def _number(connection: sa.Connection, query: str) -> int:
    return int(connection.exec_driver_sql(query).scalar_one())


def table(loads: Sequence[Load]) -> str:
    """One row for each number of dispatchers."""
    lines = [
        "| dispatchers | claims/s (devices allow) | connections | commits/s | rows read/s "
        "| rows written/s | cores of the server | of the dispatchers | backends at work, waiting "
        "| most of the rows (scans, by index) |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in loads:
        cells = (
            str(each.dispatchers),
            f"{each.claims_per_s:.2f} ({each.wanted_per_s:.2f})",
            str(each.connections),
            f"{each.commits_per_s:.0f}",
            f"{each.rows_read_per_s:,.0f}",
            f"{each.rows_written_per_s:,.0f}",
            f"{each.server_cores:.2f}",
            f"{each.dispatcher_cores:.2f}",
            f"{each.active:.2f}, {each.waiting:.2f}",
            ", ".join(
                f"`{name}` {scanned:,.0f}, {found:,.0f}"
                for name, (scanned, found) in each.most_read.items()
            ),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dispatchers", type=int, nargs="+", default=[10, 20, 40, 80])
    add("--devices", type=int, default=8, help="of each dispatcher")
    add("--trial", type=float, default=60.0, help="seconds that a trial lasts on average")
    add("--together", type=int, default=10, help="dispatchers in one process")
    add("--seconds", type=float, default=60.0, help="for which the server is watched")
    add("--settle", type=float, default=30.0, help="seconds from the last start to that")
    add("--limit", type=float, default=600.0, help="seconds for all starts")
