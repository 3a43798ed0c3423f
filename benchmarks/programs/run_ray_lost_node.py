"""Ray Tune on a cluster that is there: trials that fail are tried again without a limit.

python run_ray_lost_node.py ADDRESS N_TRIALS
"""

# mypy: disable-error-code="import-not-found,import-untyped"

import sys
from pathlib import Path

import ray
from lost_node_trial import train_on_ray
from ray import tune

ray.init(address=sys.argv[1], log_to_driver=False)
tune.Tuner(
    tune.with_resources(train_on_ray, {"cpu": 1}),
    tune_config=tune.TuneConfig(metric="value", mode="min", num_samples=int(sys.argv[2])),
    run_config=tune.RunConfig(
        name="lost",
        storage_path=str(Path("ray-results").resolve()),
        failure_config=tune.FailureConfig(max_failures=-1),
        verbose=0,
    ),
).fit()
