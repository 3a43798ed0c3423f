"""Syne Tune with its local backend: one script process per trial."""

# mypy: disable-error-code="import-not-found,import-untyped,misc"

import json
from pathlib import Path
from typing import Any

from syne_tune import StoppingCriterion, Tuner
from syne_tune.backend import LocalBackend
from syne_tune.config_space import uniform
from syne_tune.optimizer.baselines import RandomSearch

WORKLOAD: dict[str, Any] = json.loads(Path("workload.json").read_text())
# The default is 5 s, which would leave slots idle between two looks at them.
POLL_S = 0.05


class BoundedSearch(RandomSearch):
    """Random search that offers so many configurations and no more.

    `StoppingCriterion` stops after *more than* N trials have started, and looks only after all
    free workers got one. A search without further candidates ends after N exactly.
    """

    left = int(WORKLOAD["trials"])

    def suggest(self) -> Any:
        if self.left == 0:
            return None
        self.left -= 1
        return super().suggest()


def main() -> None:
    scheduler = BoundedSearch(
        {"x": uniform(0.0, 1.0)}, metrics=["value"], do_minimize=True, random_seed=0
    )
    tuner = Tuner(
        trial_backend=LocalBackend(entry_point=str(Path("syne_tune_trial.py").resolve())),
        scheduler=scheduler,
        stop_criterion=StoppingCriterion(max_num_trials_started=WORKLOAD["trials"]),
        n_workers=WORKLOAD["slots"],
        sleep_time=POLL_S,
        save_tuner=False,
        print_update_interval=3600,
        results_update_interval=3600,
    )
    tuner.run()
    print("best:", tuner.best_config())


if __name__ == "__main__":
    main()
