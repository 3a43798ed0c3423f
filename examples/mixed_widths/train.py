"""A network for the digits on one device or on several: more devices take larger batches.

The learning rate grows with the batch, after a first epoch at the small one (Goyal et al., 2017,
https://arxiv.org/abs/1706.02677), so that one range of `lr` serves all numbers of devices.
"""

from functools import cache

import optuna
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from tuner import TrialContext, ddp

BATCH_SIZE_PER_DEVICE = 32


@cache
def load_data() -> tuple[TensorDataset, TensorDataset]:
    """Training and validation data, as images [n, 64] in 0..1 and classes [n]."""
    pixels, digits = load_digits(return_X_y=True)
    images = torch.tensor(pixels / 16, dtype=torch.float32)
    parts = train_test_split(images, torch.tensor(digits), stratify=digits, random_state=0)
    return TensorDataset(parts[0], parts[2]), TensorDataset(parts[1], parts[3])


def lr_of(epoch: int, trial: TrialContext) -> float:
    return trial.params.lr * (1 if epoch == 1 else trial.world_size)


def train(trial: TrialContext) -> float:
    training, validation = load_data()
    valid_x, valid_y = (part.to(trial.device) for part in validation.tensors)
    with ddp.group(trial):
        model = ddp.wrap(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)), trial)
        optimizer = torch.optim.SGD(
            model.parameters(), lr=trial.params.lr, momentum=trial.params.momentum
        )
        batches = ddp.loader(training, trial, BATCH_SIZE_PER_DEVICE)
        for epoch in range(1, trial.params.epochs + 1):
            optimizer.param_groups[0]["lr"] = lr_of(epoch, trial)
            for images, classes in batches:
                loss = cross_entropy(model(images.to(trial.device)), classes.to(trial.device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                found = ddp.unwrap(model)(valid_x).argmax(dim=1)
            accuracy = float((found == valid_y).float().mean())
            trial.report(accuracy, step=epoch, loss=ddp.mean(loss, trial))
            if trial.should_prune():
                raise optuna.TrialPruned
    return accuracy


load_data()  # While this module is imported, once, and not in each process.
