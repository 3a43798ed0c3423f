"""One of several Optuna programs that work on one study in a database: several trials at once.

    python run_optuna_fleet.py {threads,processes} URL N_AT_ONCE N_TRIALS

`threads` is `study.optimize(n_jobs=...)`; `processes` is a process for each trial at once, as
Optuna's FAQ advises where the GIL would be in the way. The study is there already.
"""

# mypy: disable-error-code="import-not-found,no-any-return"

import multiprocessing
import sys

import optuna
from fleet_trial import train_for


def objective(trial: optuna.Trial) -> float:
    return train_for(trial.suggest_float("x", 0.0, 1.0), trial.number)


def load(url: str, n_connections: int) -> optuna.Study:
    # SQLAlchemy's own default keeps five open, and makes a new one whenever a sixth is wanted.
    storage = optuna.storages.RDBStorage(url, engine_kwargs={"pool_size": n_connections})
    sampler = optuna.samplers.RandomSampler()
    return optuna.load_study(study_name="fleet", storage=storage, sampler=sampler)


def run_process(url: str, n_trials: int) -> None:
    load(url, 1).optimize(objective, n_trials=n_trials)


def run_processes(url: str, n_at_once: int, n_trials: int) -> int:
    # Forked: what is imported once need not be imported by each.
    context = multiprocessing.get_context("fork")
    each, left = divmod(n_trials, n_at_once)
    shares = [each + (index < left) for index in range(n_at_once)]
    processes = [context.Process(target=run_process, args=(url, share)) for share in shares]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return max(abs(process.exitcode or 0) for process in processes)


def main() -> int:
    kind, url, n_at_once, n_trials = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if kind == "processes":
        return run_processes(url, n_at_once, n_trials)
    load(url, n_at_once).optimize(objective, n_trials=n_trials, n_jobs=n_at_once)
    return 0


if __name__ == "__main__":
    sys.exit(main())
