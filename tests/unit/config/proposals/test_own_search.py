"""Programs that run a search of their own are told from those that a trial can start."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

from tuner.config.proposals.own_search import own_search
from tuner.config.proposals.read import propose
from tuner.errors import ConfigError
from tuner.search_spaces import parse_space

RAY = """
from ray import tune
def train(config):
    tune.report({"accuracy": config["lr"]})
tuner = tune.Tuner(train, param_space={"lr": tune.loguniform(1e-4, 1e-2)})
tuner.fit()
"""
AGENT = """
import wandb
sweep_id = wandb.sweep({"parameters": {}})
wandb.agent(sweep_id, function=print)
"""
GRID = """
from sklearn.model_selection import GridSearchCV
search = GridSearchCV(model, {"C": [1, 10]})
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RAY, "line 5: tune.Tuner starts a search of Ray Tune, whose trials the tuner would not"),
        ("from ray import tune\ntune.run(train)", "line 2: tune.run starts a search of Ray Tune"),
        (
            "import argparse\nfrom ray.tune import run\nrun(Trainable)",
            "line 3: run starts a search of Ray Tune",
        ),
        ("from mine import run\nimport ray\nrun()", ""),
        (AGENT, "line 4: wandb.agent starts a search of W&B"),
        ("from hyperopt import fmin\nfmin(f)", "line 2: fmin starts a search of Hyperopt"),
        (
            "import keras_tuner as kt\nkt.Hyperband(build)",
            "line 2: kt.Hyperband starts a search of Keras Tuner",
        ),
        (GRID, "line 3: GridSearchCV starts a search of scikit-learn"),
        # One step of a program that has options.
        (GRID + "parser.add_argument('--lr', default=0.1)", ""),
        # Of other libraries, or not a search.
        ("import subprocess\nsubprocess.run(['ls'])", ""),
        ("import ray\nimport asyncio\nray.init()\nasyncio.run(main())", ""),
        ("import wandb\nwandb.init()", ""),
    ],
)
def test_search_of_another_library(text: str, said: str) -> None:
    found = own_search(ast.parse(text))
    assert said in found
    assert bool(said) == bool(found)


RAY_SPACE = """
from ray import tune
tune.Tuner(train, param_space={
    "lr": tune.loguniform(1e-4, 1e-1), "dropout": tune.uniform(0, 1), "width": tune.randint(8, 65),
    "batch": tune.qrandint(16, 64, 16), "share": tune.quniform(0, 1, 0.1), "kind": tune.choice(
    ["a", "b"]), "depth": tune.grid_search([1, 2]), "seed": tune.sample_from(lambda _: 1),
    "epochs": 5, "noise": tune.randn(0, 1), "other": tune.uniform(low, 1),
})
"""


def test_the_space_of_ray_is_written_as_a_search_space() -> None:
    _, _, text = own_search(ast.parse(RAY_SPACE)).partition("and its space: search_space: ")
    assert yaml.safe_load(text) == {
        "lr": {"type": "float", "low": 1e-4, "high": 0.1, "log": True},
        "dropout": {"type": "float", "low": 0.0, "high": 1.0},
        "width": {"type": "int", "low": 8, "high": 64},
        "batch": {"type": "int", "low": 16, "high": 64, "step": 16},
        "share": {"type": "float", "low": 0.0, "high": 1.0, "step": 0.1},
        "kind": ["a", "b"],
        "depth": [1, 2],
    }
    assert parse_space(yaml.safe_load(text)).names


def test_no_study_is_proposed_in_which_each_trial_is_a_search(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(RAY + "parser.add_argument('--smoke-test', action='store_true')\n")
    with pytest.raises(ConfigError, match="Let its function take the trial"):
        propose(script, tmp_path)


def test_notebook_is_named(tmp_path: Path) -> None:
    notebook = tmp_path / "train.ipynb"
    notebook.write_text("{}")
    with pytest.raises(ConfigError, match="is a notebook"):
        propose(notebook, tmp_path)
