"""Population-based training beside random search with as many device steps, on examples/population.

    python -m benchmarks.search_cases.population --seeds 8

For each seed a study with pbt, then one with as many constant learning rates, drawn at random, as
whole trainings fit into the steps that pbt has trained (copies and members that were given up
included). The loss is exact, so that the best constant of all can be told: that of a fine grid.
"""

import argparse
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

import tuner
from benchmarks.common.machine import package_versions, this_machine
from benchmarks.common.results import write_json
from benchmarks.common.systems import ROOT

EXAMPLE = ROOT / "examples" / "population"
N_STEPS = 60
_BEST_CONSTANT = """
from train import loss_with
rates = (1e-3 * 1800 ** (place / 9999) for place in range(10_000))
print(min(loss_with(lambda _: rate) for rate in rates))
"""


def best_constant() -> float:
    """The least loss that any learning rate of the space gives."""
    words = [sys.executable, "-c", _BEST_CONSTANT]
    done = subprocess.run(words, cwd=EXAMPLE, env=_environment(), check=True, capture_output=True)
    return float(done.stdout)


def play(folder: Path, seed: int, devices: int, *changes: str) -> tuple[float, int]:
    """One study, to its end.

    Returns:
        Its least loss, and the steps that it has trained.
    """
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("tuner-files", "*.db"))
    sets = [f"sampler.seed={seed}", f"devices=cpu:{devices}", *changes]
    options = [word for each in sets for word in ("--set", each)]
    words = [sys.executable, "-m", "tuner.run", "study.yaml", *options]
    subprocess.run(words, cwd=folder, env=_environment(), check=True, capture_output=True)
    file = folder / "falling_rate.db"
    with sqlite3.connect(file) as connection:
        (n_steps,) = connection.execute("select count(*) from trial_intermediate_values").fetchone()
    return tuner.load_best(f"sqlite:///{file}").value, int(n_steps)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "STEP_S": "0.1"}


def _row(title: str, played: Sequence[tuple[float, int]], constant: float) -> str:
    losses = [loss for loss, _ in played]
    n_better = sum(loss < constant for loss in losses)
    n_steps = mean(steps for _, steps in played)
    return (
        f"| {title} | {mean(losses):.4f} ± {stdev(losses):.4f} | {min(losses):.4f} - "
        f"{max(losses):.4f} | {n_better} of {len(losses)} | {n_steps:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--output", type=Path, default=Path("benchmark-population.json"))
    arguments = parser.parse_args()
    constant = best_constant()
    ours, random = list[tuple[float, int]](), list[tuple[float, int]]()
    with tempfile.TemporaryDirectory() as name:
        for seed in range(arguments.seeds):
            folder, devices = Path(name), arguments.devices
            ours.append(play(folder / f"pbt-{seed}", seed, devices, *arguments.changes))
            n_trials = round(ours[-1][1] / N_STEPS)
            changes = ("pruner=none", f"budget.trials={n_trials}")
            random.append(play(folder / f"random-{seed}", seed, devices, *changes))
            print(f"seed {seed}: pbt {ours[-1]}, random {random[-1]}", file=sys.stderr, flush=True)
    print(this_machine())
    print("| | least loss | range | better than every constant | steps |")
    print("|---|---|---|---|---|")
    print(_row("pbt", ours, constant))
    print(_row("random, as many steps", random, constant))
    print(f"the best constant: {constant:.4f}")
    n_won = sum(one[0] < other[0] for one, other in zip(ours, random, strict=True))
    print(f"pbt is better with {n_won} of {arguments.seeds} seeds")
    write_json(
        arguments.output,
        packages=package_versions(Path(sys.executable), ["torch"]),
        figures={"pbt": ours, "random": random, "best_constant": constant},
    )


if __name__ == "__main__":
    main()
