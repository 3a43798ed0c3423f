"""A small network on scikit-learn's bundled digits: 1,797 real 8x8 images of handwritten digits.

The example of the study file in the root. Run it by the tuner, or alone with the best settings:

    python -m tuner.run study.yaml
    TUNER_STORAGE=sqlite:///digits.db python -m tuner.trials.digits_mlp
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import optuna
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tuner import TrialContext, current

try:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
except ModuleNotFoundError as error:
    needed = "The digits example needs scikit-learn: pip install 'gpu-tuner[examples]'"
    raise ModuleNotFoundError(needed, name=error.name) from None

N_PIXELS = 64
N_CLASSES = 10
MAX_PIXEL = 16.0
DEFAULTS = {
    "lr": 3e-3,
    "width": 128,
    "depth": 2,
    "dropout": 0.1,
    "optimizer": "adamw",
    "batch_size": 64,
    "epochs": 20,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Images [n, 64] in 0..1 and classes [n]."""

    images: Tensor
    classes: Tensor

    def to(self, device: torch.device) -> Split:
        return Split(images=self.images.to(device), classes=self.classes.to(device))


@cache
def splits() -> tuple[Split, Split]:
    """Training and validation data: four fifths and one fifth, each class in proportion."""
    pixels, digits = load_digits(return_X_y=True)
    parts = train_test_split(pixels, digits, test_size=0.2, stratify=digits, random_state=0)
    images = [torch.tensor(part, dtype=torch.float32) / MAX_PIXEL for part in parts[:2]]
    classes = [torch.tensor(part) for part in parts[2:]]
    return (
        Split(images=images[0], classes=classes[0]),
        Split(images=images[1], classes=classes[1]),
    )


def build_model(width: int, depth: int, dropout: float) -> nn.Sequential:
    """Maps images [batch, 64] to logits [batch, 10]."""
    layers: list[nn.Module] = []
    n_inputs = N_PIXELS
    for _ in range(depth):
        layers += [nn.Linear(n_inputs, width), nn.ReLU(), nn.Dropout(dropout)]
        n_inputs = width
    return nn.Sequential(*layers, nn.Linear(n_inputs, N_CLASSES))


def build_optimizer(trial: TrialContext, model: nn.Module) -> torch.optim.Optimizer:
    params = trial.params
    if params.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=params.lr, momentum=params.momentum)
    return torch.optim.AdamW(model.parameters(), lr=params.lr)


def train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, data: Split, batch_size: int
) -> float:
    """One epoch in random order; returns the mean loss."""
    model.train()
    total = 0.0
    order = torch.randperm(len(data.classes)).to(data.classes.device)
    for batch in torch.split(order, batch_size):
        loss = cross_entropy(model(data.images[batch]), data.classes[batch])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()
        total += loss.item() * len(batch)
    return total / len(order)


@torch.no_grad()
def accuracy_of(model: nn.Module, data: Split) -> float:
    """Fraction of correctly classified images, 0 to 1."""
    model.eval()
    found = model(data.images).argmax(dim=1)
    return float((found == data.classes).float().mean())


def save(
    trial: TrialContext,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    epoch: int,
    best: float,
) -> None:
    """Keeps all that a later attempt needs to continue after this epoch."""
    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    trial.save_checkpoint({**states, "epoch": epoch, "best": best}, step=epoch, wait=False)


def resume(
    trial: TrialContext, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[int, float]:
    """Epochs done by an earlier attempt, and its best accuracy; 0 and 0 if there is none."""
    state = trial.load_checkpoint()
    if state is None:
        return 0, 0.0
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"], state["best"]


def train(trial: TrialContext) -> float:
    """Trains one network; returns its best validation accuracy."""
    params = trial.params
    training, validation = (split.to(trial.device) for split in splits())
    model = build_model(params.width, params.depth, params.dropout).to(trial.device)
    optimizer = build_optimizer(trial, model)
    done, best = resume(trial, model, optimizer)
    for epoch in range(done + 1, params.epochs + 1):
        loss = train_epoch(model, optimizer, training, params.batch_size)
        accuracy = accuracy_of(model, validation)
        best = max(best, accuracy)
        trial.report(accuracy, step=epoch, loss=loss)
        save(trial, model, optimizer, epoch, best)
        if trial.should_prune():
            raise optuna.TrialPruned
    return best


splits()  # While this module is imported, once, and not in each trial.

if __name__ == "__main__":
    print(f"validation accuracy {train(current(DEFAULTS)):.4f}")
