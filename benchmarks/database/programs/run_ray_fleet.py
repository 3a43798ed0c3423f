"""Ray Tune on a cluster that is there already.

    python run_ray_fleet.py {process,reuse} ADDRESS N_AT_ONCE N_TRIALS

`process` is a function in a process of its own for each trial, Tune's default; `reuse` a class
whose processes take the next trial over.
"""

# mypy: disable-error-code="import-not-found,import-untyped,misc,no-any-return"

import os
import sys
from pathlib import Path
from typing import Any

import ray
from ray import tune


def train(config: dict[str, Any]) -> None:
    from fleet_trial import train_for

    tune.report({"value": train_for(config["x"], os.getpid())})


class TrainClass(tune.Trainable):
    """One step is one trial."""

    def setup(self, config: dict[str, Any]) -> None:
        from fleet_trial import train_for

        self.train_for = train_for
        self.x = config["x"]

    def step(self) -> dict[str, Any]:
        return {"value": self.train_for(self.x, os.getpid()), "done": True}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        return None

    def load_checkpoint(self, checkpoint: Any) -> None:
        return None

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.x = new_config["x"]
        return True


def main() -> int:
    kind, address, n_at_once, n_trials = *sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4])
    ray.init(address=address, log_to_driver=False)
    reuses = kind == "reuse"
    tuner = tune.Tuner(
        tune.with_resources(TrainClass if reuses else train, {"cpu": 1}),
        param_space={"x": tune.uniform(0.0, 1.0)},
        tune_config=tune.TuneConfig(
            metric="value",
            mode="min",
            num_samples=n_trials,
            max_concurrent_trials=n_at_once,
            reuse_actors=reuses,
        ),
        run_config=tune.RunConfig(
            name="fleet", storage_path=str(Path("ray-results").resolve()), verbose=0
        ),
    )
    results = tuner.fit()
    ray.shutdown()
    return int(results.num_errors > 0)


if __name__ == "__main__":
    sys.exit(main())
