"""Programs of public shape: `tuner init --from train.py` and a start, nothing edited."""

from __future__ import annotations

import pytest
import yaml

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BUDGET_REACHED

pytestmark = pytest.mark.programs

#: Loss at each epoch, printed as PyTorch's mnist example does.
MNIST = r"""
import argparse

parser = argparse.ArgumentParser(description="PyTorch MNIST Example")
parser.add_argument("--batch-size", type=int, default=64, metavar="N")
parser.add_argument("--epochs", type=int, default=14)
parser.add_argument("--lr", type=float, default=1.0)
parser.add_argument("--dry-run", action="store_true")
args = parser.parse_args()
for epoch in range(1, args.epochs + 1):
    print('Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.6f}'.format(epoch, 0, 100, 0.0, 9.0))
    loss = abs(args.lr - 0.5) + args.batch_size / 1000 + 1 / epoch
    print('\nTest set: Average loss: {:.4f}, Accuracy: {}/{} ({:.0f}%)\n'.format(
        loss, 90, 100, 90.0))
"""
#: Constants that another file replaces, as in nanoGPT.
CONFIGURED = """
import os
out_dir = 'out'
max_iters = 10
learning_rate = 6e-4 # max learning rate
lr_decay_iters = 600000
dropout = 0.0
exec(open('configurator.py').read())
os.makedirs(out_dir, exist_ok=True)
for iter_num in range(0, max_iters, 5):
    losses = {'train': 9.0, 'val': learning_rate + dropout + 1 / (iter_num + 1)}
    print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
    print(f"iter {iter_num}: loss {9.0:.4f}, time {2.5*1000:.2f}ms, mfu {-100:.2f}%")
open(os.path.join(out_dir, 'ckpt.pt'), 'w').close()
"""
CONFIGURATOR = """
import sys
from ast import literal_eval
for arg in sys.argv[1:]:
    key, val = arg.split('=')
    key = key[2:]
    try:
        attempt = literal_eval(val)
    except (SyntaxError, ValueError):
        attempt = val
    assert type(attempt) == type(globals()[key])
    globals()[key] = attempt
"""
#: Returns of episodes as arrays, as in CleanRL.
EPISODES = """
import argparse
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float, default=2.5e-4)
parser.add_argument("--gae-lambda", type=float, default=0.95)
args = parser.parse_args()
for global_step in (128, 256):
    info = {"episode": {"r": np.array([args.gae_lambda * global_step], dtype=np.float32)}}
    print(f"global_step={global_step}, episodic_return={info['episode']['r']}")
    print("SPS:", 1500)
"""


@pytest.mark.parametrize(
    ("program", "objectives", "words", "n_steps"),
    [
        (MNIST, {"loss": "minimize"}, ["--epochs=2"], 2),
        (CONFIGURED, {"val_loss": "minimize"}, ["--max_iters=15"], 3),
        (EPISODES, {"episodic_return": "maximize"}, [], 2),
    ],
    ids=["argparse", "configurator", "episodes"],
)
def test_proposed_study_runs_unedited(
    study_folder: StudyFolder,
    program: str,
    objectives: dict[str, str],
    words: list[str],
    n_steps: int,
) -> None:
    study_folder.write("train.py", program)
    study_folder.write("configurator.py", CONFIGURATOR)
    made = study_folder.tuner("init", "--from", "train.py")
    assert made.code == 0, made.text
    proposed = yaml.safe_load((study_folder.path / "study.yaml").read_text())
    assert proposed["objectives"] == objectives
    options = ("--trials", "2", "--set", "devices=cpu:1", "--set", "pruner=none")
    ended = study_folder.tune(*options, "--", *words)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert study_folder.states("train.db") == ["COMPLETE"] * 2
    curves = "select intermediate_value from trial_intermediate_values"
    stored = study_folder.rows(curves, database="train.db")
    assert len(stored) == 2 * n_steps
    # Of training, each program prints 9; those of the held-out data are tuned.
    assert all(value != 9 for (value,) in stored)
    # Files are those of each trial.
    assert not (study_folder.path / "out").exists()
