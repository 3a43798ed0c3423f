"""Trials per minute on one real GPU: as many as `gpus: auto` packs, and fixed numbers at a time.

    python -m benchmarks.packing --minutes 4
    python -m benchmarks.packing --minutes 1 --gpus 1 0.25 auto

Needs an NVIDIA GPU. All studies train the network of the root's study file on the digits, with
random sampling and no pruner, for the same time; what is counted are completed trials, from the
first one's start on.
"""

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pynvml

from benchmarks.common.machine import package_versions, this_machine
from benchmarks.common.results import write_json
from benchmarks.common.systems import ROOT

STUDY = """\
study: {name}
storage: sqlite:///{name}.db
objectives: {{accuracy: maximize}}
trial: {{function: tuner.trials.digits_mlp:train, resources: {{gpus: {gpus}}}}}
search_space:
  lr: {{type: float, low: 1.0e-4, high: 1.0e-1, log: true}}
  width: {{type: int, low: 16, high: 256, log: true}}
  depth: {{type: int, low: 1, high: 4}}
  dropout: 0.1
  optimizer: adamw
  batch_size: 64
  epochs: 60
sampler: {{name: random, seed: 0}}
pruner: none
devices: [0]
budget: {{time: {seconds}s}}
"""
COUNT = """
    select count(*), (julianday(max(ended_at)) - julianday(min(started_at))) * 1440
    from tuner_attempts where outcome = 'completed'
"""
MOST = """
    select max(n) from (select count(*) n from tuner_leases a join tuner_leases b
    on b.leased_at <= a.leased_at and a.leased_at < b.released_at group by a.id)
"""


def trials_per_minute(folder: Path, gpus: str, seconds: float) -> tuple[float, int]:
    """Gives also the most trials that ran at once."""
    name = f"gpus-{gpus}"
    (folder / f"{name}.yaml").write_text(STUDY.format(name=name, gpus=gpus, seconds=seconds))
    command = [sys.executable, "-m", "tuner.run", f"{name}.yaml"]
    subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    with sqlite3.connect(folder / f"{name}.db") as connection:
        n_trials, minutes = connection.execute(COUNT).fetchone()
        (most,) = connection.execute(MOST).fetchone()
    return n_trials / minutes, most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=4.0, help="of each study")
    parser.add_argument("--gpus", nargs="+", default=["1", "auto"], help="of a trial")
    parser.add_argument("--output", type=Path, default=Path("benchmark-packing.json"))
    arguments = parser.parse_args()
    try:
        pynvml.nvmlInit()
        name = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0))
    except pynvml.NVMLError as error:
        sys.exit(f"This needs an NVIDIA GPU: {error}")
    with tempfile.TemporaryDirectory() as folder:
        found = {
            gpus: trials_per_minute(Path(folder), gpus, arguments.minutes * 60)
            for gpus in arguments.gpus
        }
    print(this_machine(), name)
    print("| resources | trials per minute | trials at once, at most |")
    print("|---|---|---|")
    for gpus, (pace, most) in found.items():
        print(f"| gpus: {gpus} | {pace:.1f} | {most} |")
    first, last = found[arguments.gpus[0]][0], found[arguments.gpus[-1]][0]
    print(f"last to first {last / first:.2f}")
    packages = package_versions(Path(sys.executable), ["torch"])
    write_json(arguments.output, packages=packages | {"gpu": str(name)}, figures=found)


if __name__ == "__main__":
    main()
