"""A small convolutional network for the digits, on all devices of its trial by nn.DataParallel."""

from functools import cache

import optuna
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tuner import TrialContext, ddp


@cache
def load_data() -> list[Tensor]:
    """Training and validation images [n, 1, 8, 8] in 0..1, then their classes [n]."""
    pixels, digits = load_digits(return_X_y=True)
    images = torch.tensor(pixels / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    return train_test_split(images, torch.tensor(digits), stratify=digits, random_state=0)


def build_model(trial: TrialContext) -> nn.Module:
    """Each batch is cut into as many parts as there are GPUs; on CPUs it stays whole."""
    n_channels = trial.params.n_channels
    model = nn.Sequential(
        *(nn.Conv2d(1, n_channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(n_channels, 2 * n_channels, 3, padding=1), nn.ReLU(), nn.Flatten()),
        nn.Linear(2 * n_channels * 16, 10),
    )
    gpus = [device for device in trial.devices if device.type == "cuda"]
    return nn.DataParallel(model.to(trial.device), device_ids=gpus) if gpus else model


def train(trial: TrialContext) -> float:
    params = trial.params
    train_x, valid_x, train_y, valid_y = (part.to(trial.device) for part in load_data())
    model = build_model(trial)
    optimizer = torch.optim.AdamW(model.parameters(), lr=params.lr)
    for epoch in range(1, params.epochs + 1):
        for batch in torch.randperm(len(train_y), device=trial.device).split(params.batch_size):
            loss = cross_entropy(model(train_x[batch]), train_y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = float((model(valid_x).argmax(dim=1) == valid_y).float().mean())
        trial.save_checkpoint({"model": ddp.state_of(model)}, step=epoch)
        trial.report(accuracy, step=epoch, loss=loss)
        if trial.should_prune():
            raise optuna.TrialPruned
    return accuracy


load_data()  # While this module is imported, once, and not in each trial.
