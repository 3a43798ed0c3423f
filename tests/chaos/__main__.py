"""`python -m tests.chaos --minutes 30 --seed 7 --database postgresql --output chaos.json`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.chaos import Chaos, run_chaos
from tests.chaos.nodes.cluster import STUDIES
from tests.chaos.nodes.network import why_not
from tests.chaos.nodes.play import NodeChaos, faults_named, run_nodes
from tests.chaos.nodes.table import table_of_nodes
from tests.chaos.site import PRUNERS
from tests.chaos.table import table_of, write_json


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--database", choices=["postgresql", "sqlite"], default="postgresql")
    parser.add_argument(
        "--pruner", choices=PRUNERS, default="none", help="all but none let trials pause"
    )
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between two faults")
    parser.add_argument("--output", type=Path, default=Path("chaos.json"))
    parser.add_argument("--folder", type=Path, help="kept; else a temporary one")
    parser.add_argument("--nodes", type=int, default=0, help="so many machines, in namespaces")
    parser.add_argument("--faults", default="", help="of --nodes: parts of names, with commas")
    parser.add_argument("--rounds", type=int, default=1, help="of --nodes: each fault so often")
    parser.add_argument("--studies", nargs="*", default=STUDIES, help="of --nodes")
    given = parser.parse_args()
    if given.nodes:
        return _run_nodes(given)
    chaos = Chaos(
        seconds=60 * given.minutes,
        seed=given.seed,
        database=given.database,
        interval_s=given.interval,
        pruner=given.pruner,
    )
    with tempfile.TemporaryDirectory(prefix="tuner-chaos-") as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = run_chaos(chaos, folder)
    write_json(result, given.output)
    print(table_of(result))
    for finding in result.findings:
        print(f"LOST: {finding}")
    return 1 if result.findings else 0


def _run_nodes(given: argparse.Namespace) -> int:
    if reason := why_not():
        print(reason, file=sys.stderr)
        return 2
    # What is entered is left then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    chaos = NodeChaos(
        n_nodes=given.nodes,
        seed=given.seed,
        faults=tuple(faults_named(given.faults, given.studies)),
        rounds=given.rounds,
        studies=tuple(given.studies),
    )
    with tempfile.TemporaryDirectory(prefix="tuner-chaos-") as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = run_nodes(chaos, folder)
    write_json(result, given.output)
    print(table_of_nodes(result))
    for finding in result.findings:
        print(f"LOST: {finding}")
    return 1 if result.findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
