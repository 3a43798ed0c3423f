"""How long `tuner submit` takes to the first line of a trial on Slurm, beside sbatch alone.

    python -m benchmarks.submit --repeats 5

With SLURM_CONF it uses a Slurm that is there, with a free node that is this machine; else it starts
that of the tests, as root.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.common.machine import this_machine
from tests.engines.slurm_cluster import slurm_cluster

_LIMIT_S = 60.0
_POLL_S = 0.005
_PROGRAM = """
from pathlib import Path

def train(trial):
    Path("first-line").touch()
    return trial.params["x"]
"""
_STUDY = """
study: submitted
trial: {function: "program:train", stop_grace: 3s}
search_space: {x: {type: float, low: 0, high: 1}}
sampler: {name: random, seed: 0}
pruner: none
devices: cpu:1
budget: {trials: 1}
engine: {name: slurm, nodes: 1}
"""
_TUNER = "import sys; sys.argv[0] = 'tuner'; from tuner.cli.main import main; main()"


def main() -> None:
    """Prints seconds: the median of each way, and all of its runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats: int = parser.parse_args().repeats
    with _slurm() as environ:
        os.environ |= environ
        _measure(repeats)


@contextmanager
def _slurm() -> Iterator[dict[str, str]]:
    """The variables of a Slurm; of one that is there already none."""
    if "SLURM_CONF" in os.environ:
        yield {}
        return
    # Not below a folder into which the user of munged may not look.
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        Path(name).chmod(0o755)
        with slurm_cluster(Path(name)) as cluster:
            yield cluster.env


def _measure(repeats: int) -> None:
    print(f"{this_machine()}, load {os.getloadavg()[0]:.1f}", flush=True)
    submit = [sys.executable, "-c", _TUNER, "submit", "study.yaml"]
    run = [sys.executable, "-m", "tuner.run", "study.yaml"]
    sbatch = ["sbatch", "--output=/dev/null", "--wrap=touch first-line"]
    ways = {"tuner submit": submit, "sbatch alone": sbatch, "python -m tuner.run": run}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, words in ways.items():
            times[name].append(_seconds(words))
    for name, found in times.items():
        runs = ", ".join(f"{each:.2f}" for each in found)
        print(f"{name:22} {statistics.median(found):6.2f} s   ({runs})")


def _seconds(words: list[str]) -> float:
    """Until the file is there; what was started then ends by itself."""
    with tempfile.TemporaryDirectory(prefix="submit-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "program.py").write_text(_PROGRAM)
        (folder / "study.yaml").write_text(_STUDY)
        begun_at_s = time.monotonic()
        process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL)
        _wait(lambda: any(folder.rglob("first-line")))
        passed_s = time.monotonic() - begun_at_s
        process.wait(_LIMIT_S)
        _wait(lambda: not subprocess.check_output(["squeue", "--noheader", "--me"]))
    return passed_s


def _wait(is_so: Callable[[], bool]) -> None:
    give_up_at_s = time.monotonic() + _LIMIT_S
    while not is_so():
        if time.monotonic() > give_up_at_s:
            raise SystemExit(f"Nothing came within {_LIMIT_S:g} s.")
        time.sleep(_POLL_S)


if __name__ == "__main__":
    main()
