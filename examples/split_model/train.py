"""A network for the digits whose two halves are on two devices, split by hand."""

from functools import cache

import optuna
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tuner import TrialContext


@cache
def load_data() -> list[Tensor]:
    """Training and validation images [n, 64] in 0..1, then their classes [n]."""
    pixels, digits = load_digits(return_X_y=True)
    images = torch.tensor(pixels / 16, dtype=torch.float32)
    return train_test_split(images, torch.tensor(digits), stratify=digits, random_state=0)


class SplitModel(nn.Module):
    """Maps images [batch, 64], on any device, to logits [batch, 10] on the last one."""

    def __init__(self, width: int, devices: tuple[torch.device, ...]) -> None:
        super().__init__()
        self.first_device, self.last_device = devices[0], devices[-1]
        self.first = nn.Sequential(nn.Linear(64, width), nn.ReLU()).to(self.first_device)
        self.last = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)).to(
            self.last_device
        )

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.first(images.to(self.first_device))
        return self.last(hidden.to(self.last_device))


def train(trial: TrialContext) -> float:
    params = trial.params
    train_x, valid_x, train_y, valid_y = load_data()
    model = SplitModel(params.width, trial.devices)
    train_y, valid_y = train_y.to(model.last_device), valid_y.to(model.last_device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=params.lr)
    for epoch in range(1, params.epochs + 1):
        for batch in torch.randperm(len(train_x)).split(params.batch_size):
            loss = cross_entropy(model(train_x[batch]), train_y[batch.to(model.last_device)])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = float((model(valid_x).argmax(dim=1) == valid_y).float().mean())
        trial.report(accuracy, step=epoch, loss=loss)
        if trial.should_prune():
            raise optuna.TrialPruned
    return accuracy


load_data()  # While this module is imported, once, and not in each trial.
