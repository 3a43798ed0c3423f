"""A convolutional network on images of digits that scikit-learn brings along, with AdamW."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from sklearn import datasets
from sklearn.model_selection import train_test_split
from torch import nn

from benchmarks.search_quality.record.job import Job, Recorder, Trained

SPACE: Mapping[str, Mapping[str, Any]] = {
    "learning_rate": {"type": "float", "low": 1e-5, "high": 0.1, "log": True},
    "batch_size": {"type": "int", "low": 8, "high": 128, "log": True},
    "weight_decay": {"type": "float", "low": 1e-5, "high": 1.0, "log": True},
    "beta_1": {"type": "float", "low": 0.5, "high": 0.99},
    "channels": {"type": "int", "low": 4, "high": 32, "log": True},
    "dropout": {"type": "float", "low": 0.0, "high": 0.8},
    "label_smoothing": {"type": "float", "low": 0.0, "high": 0.3},
    "largest_shift": {"type": "int", "low": 0, "high": 2},
}
#: Few are trained on, so that shifting them matters.
_VALIDATED = 0.75
_LARGEST = 16.0


def train(job: Job) -> Trained:
    """Trains on one thread; accuracy on what was not trained on, in percent."""
    torch.set_num_threads(1)
    torch.manual_seed(job.seed)
    x, y, x_valid, y_valid = _images()
    params = job.params
    model = _network(int(params["channels"]), params["dropout"])
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=params["learning_rate"],
        betas=(params["beta_1"], 0.999),
        weight_decay=params["weight_decay"],
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, job.factor)
    loss_of = nn.CrossEntropyLoss(label_smoothing=params["label_smoothing"])
    recorder = Recorder()
    for _ in range(job.n_epochs):
        model.train()
        for batch in torch.split(torch.randperm(len(x)), int(params["batch_size"])):
            optimizer.zero_grad()
            loss = loss_of(model(_shifted(x[batch], int(params["largest_shift"]))), y[batch])
            loss.backward()
            optimizer.step()
        schedule.step()
        model.eval()
        with torch.no_grad():
            right = (model(x_valid).argmax(dim=1) == y_valid).double().mean()
        recorder.take(100.0 * float(right))
    return recorder.trained


def _network(channels: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(8 * channels, 10),
    )


def _shifted(x: torch.Tensor, largest: int) -> torch.Tensor:
    """[n, 1, 8, 8], all images of a batch moved alike, by at most so many pixels each way."""
    rows, columns = torch.randint(-largest, largest + 1, (2,)).tolist()
    padded = nn.functional.pad(x, (largest,) * 4)
    top, left = largest + rows, largest + columns
    return padded[:, :, top : top + 8, left : left + 8]


@cache
def _images() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """[n, 1, 8, 8] images to train on, [n] their digits, and the same of others to look at."""
    x, y = datasets.load_digits(return_X_y=True)
    x, x_valid, y, y_valid = train_test_split(
        x, y, test_size=_VALIDATED, random_state=0, stratify=y
    )

    def images(rows: Any) -> torch.Tensor:
        return torch.tensor(rows / _LARGEST, dtype=torch.float32).reshape(-1, 1, 8, 8)

    return images(x), torch.tensor(y), images(x_valid), torch.tensor(y_valid)
