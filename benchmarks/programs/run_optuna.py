"""Optuna as its FAQ says: one study on SQLite, and N processes that load it and optimize.

`python run_optuna.py` starts the processes; `python run_optuna.py INDEX` is one of them.
"""

# mypy: disable-error-code="import-not-found,no-any-return"

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna

WORKLOAD: dict[str, Any] = json.loads(Path("workload.json").read_text())
STORAGE = "sqlite:///bench.db"
SAMPLERS: dict[str, Any] = {
    "random": optuna.samplers.RandomSampler,
    "tpe": optuna.samplers.TPESampler,
}


def share_of(index: int) -> int:
    """How many of the trials process `index` runs."""
    each, left = divmod(WORKLOAD["trials"], WORKLOAD["slots"])
    return int(each + (index < left))


def run_process(index: int) -> None:
    from bench_trial import train_for  # the starting process needs no torch

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        return train_for(x, lambda value: trial.report(value, step=1), slot=f"process:{index}")

    study = optuna.load_study(
        study_name="bench", storage=STORAGE, sampler=SAMPLERS[WORKLOAD["sampler"]](seed=index)
    )
    study.optimize(objective, n_trials=share_of(index))


def main() -> int:
    optuna.create_study(study_name="bench", storage=STORAGE, direction="minimize")
    processes = [
        subprocess.Popen([sys.executable, __file__, str(index)])
        for index in range(WORKLOAD["slots"])
    ]
    codes = [process.wait() for process in processes]
    best = optuna.load_study(study_name="bench", storage=STORAGE).best_trial
    print(f"best: trial {best.number}, value {best.value}")
    return max(abs(code) for code in codes)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_process(int(sys.argv[1]))
    else:
        sys.exit(main())
