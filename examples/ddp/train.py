"""A network for the digits, trained by several processes at once: one per device of its trial.

By the tuner: python -m tuner.run study.yaml
Alone, with the best configuration that it found:

    TUNER_STORAGE=sqlite:///ddp.db torchrun --standalone --nproc-per-node=2 train.py
"""

from functools import cache

import optuna
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import tuner
from tuner import TrialContext, ddp

DEFAULTS = {"lr": 3e-3, "width": 64, "batch_size": 64, "epochs": 6}


@cache
def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Training and validation data, as images [n, 64] in 0..1 and classes [n]."""
    pixels, digits = load_digits(return_X_y=True)
    images = torch.tensor(pixels / 16, dtype=torch.float32)
    parts = train_test_split(images, torch.tensor(digits), stratify=digits, random_state=0)
    return TensorDataset(parts[0], parts[2]), TensorDataset(parts[1], parts[3])


def build_model(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, batches: DataLoader) -> float:
    """One pass over this process's part of the data; gives its mean loss."""
    device = next(model.parameters()).device
    losses = []
    for images, classes in batches:
        loss = cross_entropy(model(images.to(device)), classes.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return float(torch.stack(losses).mean())


@torch.no_grad()
def accuracy_of(model: nn.Module, data: TensorDataset, trial: TrialContext) -> float:
    """Each process looks at its own part; all get the accuracy on the whole."""
    images, classes = (part.to(trial.device) for part in data[trial.rank :: trial.world_size])
    n_right = (model(images).argmax(dim=1) == classes).sum()
    return ddp.mean(n_right, trial) * trial.world_size / len(data)


def train(trial: TrialContext) -> float:
    """Runs in every process; gives the accuracy after the last epoch."""
    params = trial.params
    training, validation = load_data()
    with ddp.group(trial):
        # Every process takes its share of a batch, so that it is as large on any number of them.
        batches = ddp.loader(training, trial, params.batch_size // trial.world_size)
        model = ddp.wrap(build_model(params.width), trial)
        optimizer = torch.optim.AdamW(model.parameters(), lr=params.lr)
        done, accuracy = 0, 0.0
        if state := trial.load_checkpoint():
            ddp.unwrap(model).load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            done, accuracy = state["epoch"], state["accuracy"]
            batches.sampler.set_epoch(done)
        for epoch in range(done + 1, params.epochs + 1):
            loss = ddp.mean(train_epoch(model, optimizer, batches), trial)
            accuracy = accuracy_of(ddp.unwrap(model), validation, trial)
            state = {
                "model": ddp.state_of(model),
                "optimizer": optimizer.state_dict(),
                "epoch": epoch,
                "accuracy": accuracy,
            }
            # Of these, the first process alone writes and reports; each may call them.
            trial.save_checkpoint(state, step=epoch)
            trial.report(accuracy, step=epoch, loss=loss)
            if trial.should_prune():
                raise optuna.TrialPruned
    return accuracy


load_data()  # While this module is imported, once, and not in each process.

if __name__ == "__main__":
    trial = tuner.current(DEFAULTS)
    trial.seed_everything()  # As the tuner did, so that the best trial comes out again.
    train(trial)
