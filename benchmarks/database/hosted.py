"""Some dispatchers in one process, each with workers that are played in real time.

    python -m benchmarks.database.hosted URL FIRST COUNT DEVICES SECONDS

It runs until it is killed: whoever has started it looks at the server meanwhile.
"""

import sys
import tempfile
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import optuna

from benchmarks.database.played import PassingClock, PlayedWorkers
from benchmarks.database.rig import build_dispatcher, open_study, unseen_view
from tuner.store.connection.database import open_database
from tuner.store.records.provenance import HostFacts, host_facts

N_REPORTS = 20


def main() -> None:
    url, *numbers = sys.argv[1:]
    first, count, n_devices = map(int, numbers[:3])
    seconds = float(numbers[3])
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for number in range(first, first + count):
        words = (url, number, n_devices, seconds)
        threading.Thread(target=run_dispatcher, args=words, daemon=True).start()
    while True:
        time.sleep(60)


def run_dispatcher(url: str, number: int, n_devices: int, seconds: float) -> None:
    """A dispatcher of the size of a node, whose trials last about so many seconds."""
    clock = PassingClock()
    with (
        tempfile.TemporaryDirectory(prefix="bench-node-") as folder,
        closing(open_database(url)) as database,
        unseen_view() as view,
    ):
        study = open_study(database, clock, n_slots=n_devices, host=node(number))
        workers = PlayedWorkers(
            clock, n_reports=N_REPORTS, report_every_s=seconds / N_REPORTS, are_uneven=True
        )
        build_dispatcher(
            study,
            folder=Path(folder),
            n_slots=n_devices,
            n_trials=None,
            launcher=workers,
            channel=workers,
            view=view,
            clock=clock,
        ).run(workers)


def node(number: int) -> HostFacts:
    """This machine under another name and boot: its processes cannot be checked by others."""
    facts = host_facts()
    name = f"node-{number}"
    return replace(facts, process=replace(facts.process, host=name, boot_id=name))


if __name__ == "__main__":
    main()
