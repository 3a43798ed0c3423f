"""Curves of real trainings, as a table that `tuner simulate` and `benchmarks.search_quality` take.

    python -m benchmarks.search_quality.record --data digits --configurations 1000

A multilayer perceptron on data that scikit-learn brings along, trained with SGD whose learning rate
falls along a cosine to the last epoch, from the space of LCBench (Zimmer, Lindauer and Hutter,
arXiv:2006.13799): configurations at random, each with initial weights and an order of its own, so
that values have the noise that trainings have. What is done when it is interrupted is written.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import optuna
import torch
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn

from benchmarks.search_quality.spaces import LCBENCH_SPACE
from tuner.search_spaces import parse_space
from tuner.search_spaces.space import is_number

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


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training."""

    data: str
    params: Mapping[str, float]
    n_epochs: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What one has shown.

    Attributes:
        values: [n_epochs], accuracy on what was not trained on, in percent.
        seconds: [n_epochs], of processor, since it began.
    """

    values: list[float]
    seconds: list[float]


def train(job: Job) -> Trained:
    """Trains on one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(job.seed)
    x, y, x_valid, y_valid = _split(job.data)
    get = job.params
    batch_size = int(get["batch_size"])
    model = _perceptron(
        n_inputs=x.shape[1],
        n_classes=int(y.max()) + 1,
        n_layers=int(get["num_layers"]),
        max_units=int(get["max_units"]),
        max_dropout=get["max_dropout"],
    )
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=get["learning_rate"],
        momentum=get["momentum"],
        weight_decay=get["weight_decay"],
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, job.n_epochs)
    trained = Trained(values=[], seconds=[])
    began_s = time.process_time()
    for _ in range(job.n_epochs):
        model.train()
        order = torch.randperm(len(x))
        for first in range(0, len(x), batch_size):
            batch = order[first : first + batch_size]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            loss.backward()  # type: ignore[no-untyped-call]  # torch has none for it.
            optimizer.step()
        schedule.step()
        model.eval()
        with torch.no_grad():
            right = (model(x_valid).argmax(dim=1) == y_valid).double().mean()
        trained.values.append(100.0 * float(right))
        trained.seconds.append(time.process_time() - began_s)
    return trained


def _perceptron(
    *, n_inputs: int, n_classes: int, n_layers: int, max_units: int, max_dropout: float
) -> nn.Sequential:
    """A funnel: widths and dropout fall from the first hidden layer to the last in equal steps."""
    layers: list[nn.Module] = []
    width = n_inputs
    for layer in range(n_layers):
        left = 1.0 - layer / n_layers
        units = round(n_classes + (max_units - n_classes) * left)
        layers += [nn.Linear(width, units), nn.ReLU(), nn.Dropout(max_dropout * left)]
        width = units
    return nn.Sequential(*layers, nn.Linear(width, n_classes))


def _split(data: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inputs and classes to train on, and others to look at."""
    x, y = DATA[data]()
    x, x_valid, y, y_valid = train_test_split(
        x, y, test_size=_VALIDATED, random_state=0, stratify=y
    )
    scaler = StandardScaler().fit(x)
    return (
        torch.tensor(scaler.transform(x), dtype=torch.float32),
        torch.tensor(y),
        torch.tensor(scaler.transform(x_valid), dtype=torch.float32),
        torch.tensor(y_valid),
    )


def jobs(args: argparse.Namespace) -> list[Job]:
    """Configurations at random."""
    space = parse_space(LCBENCH_SPACE)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=args.seed))
    return [
        Job(
            data=args.data,
            params={k: v for k, v in space.suggest(study.ask()).items() if is_number(v)},
            n_epochs=args.epochs,
            seed=args.seed + number,
        )
        for number in range(args.configurations)
    ]


def write_table(path: Path, done: Sequence[tuple[Job, Trained]]) -> None:
    """One row for each training."""
    names = list(LCBENCH_SPACE)
    np.savez_compressed(
        path,
        names=np.array(names),
        x=np.array([[job.params[name] for name in names] for job, _ in done], dtype=float),
        value=np.array([trained.values for _, trained in done]),
        seconds=np.array([trained.seconds for _, trained in done]),
    )


def main(argv: Sequence[str] | None = None) -> None:
    args = _parser().parse_args(argv)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path = args.output or Path(f"mlp_{args.data}.npz")
    done: list[tuple[Job, Trained]] = []
    todo = jobs(args)
    try:
        with ProcessPoolExecutor(args.jobs) as pool:
            for job, trained in zip(todo, pool.map(train, todo), strict=True):
                done.append((job, trained))
                if len(done) % 20 == 0:
                    print(f"{len(done)} of {len(todo)} trainings", file=sys.stderr, flush=True)
    finally:
        if done:
            write_table(path, done)
            print(f"{len(done)} curves are in {path}.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add = parser.add_argument
    add("--data", choices=list(DATA), default="digits")
    add("--configurations", type=int, default=1000)
    add("--epochs", type=int, default=52)
    add("--seed", type=int, default=0)
    add("--jobs", type=int, default=1, help="trainings at once, each on one thread")
    add("--output", type=Path, help="mlp_DATA.npz where none is named")
    return parser


if __name__ == "__main__":
    main()
