"""The database of a study: what it costs, how quick it is and how far it goes, beside Optuna's.

    python -m benchmarks.database trial
    python -m benchmarks.database cold --keep FOLDER
    python -m benchmarks.database reports
    python -m benchmarks.database memory --keep FOLDER
    python -m benchmarks.database fleet
    python -m benchmarks.database many

Prints progress, then one Markdown table, and writes a JSON file. See docs/benchmarks.md.
"""

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import optuna

from benchmarks.common.machine import package_versions, this_machine
from benchmarks.common.results import write_json
from benchmarks.database import cold, fleet, held, many, reports, trial
from benchmarks.database.servers import POSTGRESQL, server_for, server_version

PACKAGES = ("tuner", "optuna", "sqlalchemy", "psycopg", "numpy")

Measured = tuple[list[Any], str]
"""Figures, and their table."""


def _trial(args: argparse.Namespace, server_url: str | None) -> Measured:
    timed = list(trial.measure(args, server_url))
    return timed, trial.table(timed)


def _cold(args: argparse.Namespace, server_url: str | None) -> Measured:
    starts = list(cold.measure(args, server_url))
    return starts, cold.table(starts)


def _reports(args: argparse.Namespace, server_url: str | None) -> Measured:
    rates = list(reports.measure(args, server_url))
    return rates, reports.table(rates)


def _memory(args: argparse.Namespace, _: str | None) -> Measured:
    figures = list(held.measure(args))
    return figures, held.table(figures)


def _fleet(args: argparse.Namespace, server_url: str | None) -> Measured:
    runs = list(fleet.measure(args, str(server_url)))
    return runs, fleet.table(runs)


def _many(args: argparse.Namespace, server_url: str | None) -> Measured:
    loads = list(many.measure(args, str(server_url)))
    return loads, many.table(loads)


MEASURES: dict[str, Callable[[argparse.Namespace, str | None], Measured]] = {
    "trial": _trial,
    "cold": _cold,
    "reports": _reports,
    "memory": _memory,
    "fleet": _fleet,
    "many": _many,
}
_ARGUMENTS = {
    "trial": trial,
    "cold": cold,
    "reports": reports,
    "memory": held,
    "fleet": fleet,
    "many": many,
}


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.database", description="Measure the database of a study."
    )
    subparsers = parser.add_subparsers(dest="measure", required=True)
    for name, module in _ARGUMENTS.items():
        own = subparsers.add_parser(name, help=str(module.__doc__).rpartition(":")[0])
        module.add_arguments(own)
        own.add_argument(
            "--url", help="a database of a PostgreSQL server; one is started where none is named"
        )
        output = Path(f"benchmark-database-{name}.json")
        own.add_argument("--output", type=Path, default=output)
    return parser.parse_args(words)


def kinds_of(args: argparse.Namespace) -> list[str]:
    """The databases that a measure needs."""
    return [POSTGRESQL] if args.measure in ("fleet", "many") else getattr(args, "databases", [])


def main() -> int:
    args = parse_arguments()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    print(f"{datetime.now(UTC):%Y-%m-%d}, {this_machine()}", flush=True)
    packages: dict[str, object] = {"tuner": package_versions(Path(sys.executable), PACKAGES)}
    limit = many.MAX_CONNECTIONS if args.measure == "many" else 100
    with server_for(kinds_of(args), args.url, max_connections=limit) as server_url:
        if server_url is not None:
            packages["postgresql"] = server_version(server_url)
        figures, table = MEASURES[args.measure](args, server_url)
    print(f"\n{table}")
    write_json(args.output, packages=packages, figures=[asdict(one) for one in figures])
    return 0


if __name__ == "__main__":
    sys.exit(main())
