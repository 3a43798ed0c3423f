"""Curves of real trainings, as a table that `tuner simulate` and `benchmarks.search_quality` take.

    python -m benchmarks.search_quality.record --data digits --configurations 1000
    python -m benchmarks.search_quality.record --data cubes --schedule steps --device cuda \\
        --configurations 5000

A multilayer perceptron on data that scikit-learn brings along, trained with SGD, from the space of
LCBench (Zimmer, Lindauer and Hutter, arXiv:2006.13799): configurations at random, each with initial
weights and an order of its own, so that values have the noise that trainings have. The learning
rate falls along a cosine to the last epoch, or in two steps, after which curves of high learning
rates cross those of low ones. What is done when it is interrupted is written.

With `--device` thousands are trained at once. Batch sizes are powers of two then, and the
seconds are those that a training alone would take on a processor, by a formula. Small batches come
first: a table that is interrupted lacks the large ones.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import optuna
import torch
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn

from benchmarks.search_quality.record.batched import Network, Split, train_all
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


def _cosine(epoch: int, n_epochs: int) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * epoch / n_epochs))


def _steps(epoch: int, n_epochs: int) -> float:
    """A tenth at 60 % of the training, a hundredth at 80 %."""
    return 0.1 ** sum(epoch >= share * n_epochs for share in (0.6, 0.8))


#: The factor of the learning rate in an epoch, from 0, of a number of epochs.
SCHEDULES: Mapping[str, Callable[[int, int], float]] = {"cosine": _cosine, "steps": _steps}


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training."""

    data: str
    schedule: str
    params: Mapping[str, float]
    n_epochs: int
    seed: int

    def factor(self, epoch: int) -> float:
        """Of the learning rate."""
        return SCHEDULES[self.schedule](epoch, self.n_epochs)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What one has shown.

    Attributes:
        values: [n_epochs], accuracy on what was not trained on, in percent.
        seconds: [n_epochs], of one processor, since it began.
    """

    values: list[float]
    seconds: list[float]


def train(job: Job) -> Trained:
    """Trains on one thread."""
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
    trained = Trained(values=[], seconds=[])
    began_s = time.process_time()
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
        trained.values.append(100.0 * float(right))
        trained.seconds.append(time.process_time() - began_s)
    return trained


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


def jobs(args: argparse.Namespace) -> list[Job]:
    """Configurations at random."""
    space = parse_space(LCBENCH_SPACE)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=args.seed))
    return [
        Job(
            data=args.data,
            schedule=args.schedule,
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
    path = args.output or Path(f"mlp_{args.data}_{args.schedule}.npz")
    done: list[tuple[Job, Trained]] = []
    todo = jobs(args)
    try:
        for each in _trained(todo, args):
            done.append(each)
            if len(done) % 20 == 0:
                print(f"{len(done)} of {len(todo)} trainings", file=sys.stderr, flush=True)
    finally:
        if done:
            write_table(path, done)
            print(f"{len(done)} curves are in {path}.")


def _trained(todo: Sequence[Job], args: argparse.Namespace) -> Iterator[tuple[Job, Trained]]:
    if args.device is not None:
        yield from train_together(todo, args.device)
        return
    with ProcessPoolExecutor(args.jobs) as pool:
        yield from zip(todo, pool.map(train, todo), strict=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_quality.record",
        description=__doc__.splitlines()[0] if __doc__ else "",
    )
    add = parser.add_argument
    add("--data", choices=list(DATA), default="digits")
    add("--schedule", choices=list(SCHEDULES), default="cosine", help="of the learning rate")
    add("--configurations", type=int, default=1000)
    add("--epochs", type=int, default=52)
    add("--seed", type=int, default=0)
    add("--jobs", type=int, default=1, help="trainings at once, each on one thread")
    add("--device", type=torch.device, help="such as cuda: all at once on it")
    add("--output", type=Path, help="mlp_DATA_SCHEDULE.npz where none is named")
    return parser


if __name__ == "__main__":
    main()
