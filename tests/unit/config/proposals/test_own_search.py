"""Programs that run a search of their own are told from those that a trial can start."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tuner.config.proposals.own_search import own_search
from tuner.config.proposals.read import propose
from tuner.errors import ConfigError

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
