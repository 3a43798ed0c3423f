"""Ray Tune on one machine, loopback only.

By default every trial is a function in a process of its own, as `tune.Tuner` does it; with
`--reuse-actors` it is a class trainable whose processes take the next trial over.
"""

# mypy: disable-error-code="import-not-found,import-untyped,misc,untyped-decorator"

import json
import os
import sys
from pathlib import Path
from typing import Any

import ray
from ray import tune

WORKLOAD: dict[str, Any] = json.loads(Path(__file__).with_name("workload.json").read_text())


def train_function(config: dict[str, Any]) -> None:
    from bench_trial import train_for  # in the worker: the driver needs no torch

    train_for(config["x"], lambda value: tune.report({"value": value}), slot=None)


class TrainClass(tune.Trainable):
    """One step is one trial; its result is the report, so it comes after the training."""

    def setup(self, config: dict[str, Any]) -> None:
        from bench_trial import train_for

        self.train_for = train_for
        self.x = config["x"]

    def step(self) -> dict[str, Any]:
        value = self.train_for(self.x, lambda value: None, slot=f"process:{os.getpid()}")
        return {"value": value, "done": True}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        return None

    def load_checkpoint(self, checkpoint: Any) -> None:
        return None

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.x = new_config["x"]
        return True


def main() -> int:
    reuse_actors = "--reuse-actors" in sys.argv
    ray.init(
        num_cpus=WORKLOAD["slots"],
        _node_ip_address="127.0.0.1",
        include_dashboard=False,
        log_to_driver=False,
    )
    trainable = TrainClass if reuse_actors else train_function
    tuner = tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1}),
        param_space={"x": tune.uniform(0.0, 1.0)},
        tune_config=tune.TuneConfig(
            metric="value",
            mode="min",
            num_samples=WORKLOAD["trials"],
            max_concurrent_trials=WORKLOAD["slots"],
            reuse_actors=reuse_actors,
        ),
        run_config=tune.RunConfig(
            name="bench", storage_path=str(Path("ray-results").resolve()), verbose=0
        ),
    )
    results = tuner.fit()
    print(f"best: {results.get_best_result().metrics['value']}, errors: {results.num_errors}")
    ray.shutdown()
    return int(results.num_errors > 0)


if __name__ == "__main__":
    sys.exit(main())
