"""A multilayer perceptron on data that scikit-learn brings along, from the space of LCBench.

Source of the space: Zimmer, Lindauer and Hutter, "Auto-PyTorch Tabular" (arXiv:2006.13799).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn

from benchmarks.search_quality.record.batched import Network, Split, train_all
from benchmarks.search_quality.record.job import Job, Recorder, Trained

Array = NDArray[np.float64]

#: Scikit-learn's digits; and points around the corners of cubes, five classes, where of 30
#: numbers ten tell something and a label in twenty is wrong.
DATA: Mapping[str, Callable[[], tuple[Array, Array]]] = {
    "digits": lambda: datasets.load_digits(return_X_y=True),
    "cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
    "cubes": lambda: datasets.make_classification(
        n_samples=1800,
        n_features=30,
        n_informative=10,
        n_redundant=5,
        n_classes=5,
        n_clusters_per_class=3,
        flip_y=0.05,
        random_state=0,
    ),
}
#: Few are trained on, so that regularization matters.
_VALIDATED = 2 / 3


def train(job: Job) -> Trained:
    """Trains on one thread; accuracy on what was not trained on, in percent."""
    torch.set_num_threads(1)
    torch.manual_seed(job.seed)
    split = _split(job.data)
    network = _network(job.params, split.n_classes)
    model = _perceptron(split.x.shape[1], network, split.n_classes)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=network.learning_rate,
        momentum=network.momentum,
        weight_decay=network.weight_decay,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, job.factor)
    recorder = Recorder()
    for _ in range(job.n_epochs):
        model.train()
        order = torch.randperm(len(split.x))
        for first in range(0, len(split.x), network.batch_size):
            batch = order[first : first + network.batch_size]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(split.x[batch]), split.y[batch])
            loss.backward()  # type: ignore[no-untyped-call]  # torch has none for it.
            optimizer.step()
        schedule.step()
        model.eval()
        with torch.no_grad():
            right = (model(split.x_valid).argmax(dim=1) == split.y_valid).double().mean()
        recorder.take(100.0 * float(right))
    return recorder.trained


def train_together(todo: Sequence[Job], device: torch.device) -> Iterator[tuple[Job, Trained]]:
    """Trains all on one device; each as it ends, with the batch size that it had."""
    split = _split(todo[0].data).on(device)
    rounded = [_with_round_batch(job) for job in todo]
    networks = [_network(job.params, split.n_classes) for job in rounded]
    first = todo[0]
    done = train_all(
        networks, split, n_epochs=first.n_epochs, schedule=first.factor, seed=first.seed
    )
    for place, values in done:
        epoch_s = _epoch_s(networks[place], split)
        seconds = [epoch_s * (epoch + 1) for epoch in range(first.n_epochs)]
        yield rounded[place], Trained(values=values, seconds=seconds)


def _with_round_batch(job: Job) -> Job:
    power = round(math.log2(job.params["batch_size"]))
    return replace(job, params={**job.params, "batch_size": 2**power})


def _epoch_s(network: Network, split: Split) -> float:
    """How long an epoch takes on one core of an Intel Xeon, torch 2.13.0.

    Fitted to 60 trainings on the digits: 16 % off in the mean.
    """
    widths = [split.x.shape[1], *network.widths, split.n_classes]
    n_weights = sum(inputs * outputs for inputs, outputs in itertools.pairwise(widths))
    n_steps = math.ceil(len(split.x) / network.batch_size)
    operations = (6 * len(split.x) + 2 * len(split.x_valid)) * n_weights
    step_s = 1.1e-4 + 1.7e-4 * len(network.widths) + 3.6e-9 * n_weights
    return 3.0e-3 + n_steps * step_s + 1.6e-11 * operations


def _network(params: Mapping[str, float], n_classes: int) -> Network:
    """A funnel: widths and dropout fall from the first hidden layer to the last in equal steps."""
    n_layers, max_units = int(params["num_layers"]), int(params["max_units"])
    left = [1.0 - layer / n_layers for layer in range(n_layers)]
    return Network(
        batch_size=int(params["batch_size"]),
        learning_rate=params["learning_rate"],
        momentum=params["momentum"],
        weight_decay=params["weight_decay"],
        widths=[round(n_classes + (max_units - n_classes) * share) for share in left],
        dropouts=[params["max_dropout"] * share for share in left],
    )


def _perceptron(n_inputs: int, network: Network, n_classes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    width = n_inputs
    for units, dropout in zip(network.widths, network.dropouts, strict=True):
        layers += [nn.Linear(width, units), nn.ReLU(), nn.Dropout(dropout)]
        width = units
    return nn.Sequential(*layers, nn.Linear(width, n_classes))


def _split(data: str) -> Split:
    x, y = DATA[data]()
    x, x_valid, y, y_valid = train_test_split(
        x, y, test_size=_VALIDATED, random_state=0, stratify=y
    )
    scaler = StandardScaler().fit(x)
    return Split(
        x=torch.tensor(scaler.transform(x), dtype=torch.float32),
        y=torch.tensor(y),
        x_valid=torch.tensor(scaler.transform(x_valid), dtype=torch.float32),
        y_valid=torch.tensor(y_valid),
        n_classes=int(y.max()) + 1,
    )
