"""Curves of real trainings, as a table that `tuner simulate` and `benchmarks.search_quality` take.

    python -m benchmarks.search_quality.record --data digits --configurations 1000
    python -m benchmarks.search_quality.record --data text --schedule steps --jobs 2
    python -m benchmarks.search_quality.record --data cubes --schedule steps --device cuda \\
        --configurations 5000

Configurations at random, each with initial weights and an order of its own, so that values have
the noise that trainings have. The learning rate falls along a cosine to the last epoch, or in two
steps, after which curves of high learning rates cross those of low ones. What is done when it is
interrupted is written.

With `--device` thousands of perceptrons are trained at once. Batch sizes are powers of two then,
and the seconds are those that a training alone would take on a processor, by a formula. Small
batches come first: a table that is interrupted lacks the large ones.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import torch

from benchmarks.search_quality.record import convolutional, perceptron, recurrent
from benchmarks.search_quality.record.job import SCHEDULES, Job, Trained
from benchmarks.search_quality.spaces import LCBENCH_SPACE
from tuner.search_spaces import parse_space
from tuner.search_spaces.space import is_number


@dataclass(frozen=True, kw_only=True)
class Program:
    """What is trained."""

    #: Of the file that is written.
    name: str
    space: Mapping[str, Mapping[str, Any]]
    train: Callable[[Job], Trained]


_PERCEPTRON = Program(name="mlp", space=LCBENCH_SPACE, train=perceptron.train)
#: By data.
PROGRAMS: Mapping[str, Program] = {
    **dict.fromkeys(perceptron.DATA, _PERCEPTRON),
    "images": Program(name="cnn", space=convolutional.SPACE, train=convolutional.train),
    "text": Program(name="rnn", space=recurrent.SPACE, train=recurrent.train),
}


def jobs(args: argparse.Namespace) -> list[Job]:
    """Configurations at random."""
    space = parse_space(PROGRAMS[args.data].space)
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
    """One row for each training; values and seconds have half the size in single precision."""
    space = PROGRAMS[done[0][0].data].space
    np.savez_compressed(
        path,
        names=np.array(list(space)),
        space=np.array(json.dumps(space)),
        x=np.array([[job.params[name] for name in space] for job, _ in done], dtype=float),
        value=np.array([trained.values for _, trained in done], dtype=np.float32),
        seconds=np.array([trained.seconds for _, trained in done], dtype=np.float32),
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = _parser()
    args = parser.parse_args(argv)
    program = PROGRAMS[args.data]
    if args.device is not None and program is not _PERCEPTRON:
        parser.error(f"--device trains perceptrons: --data must be of {', '.join(perceptron.DATA)}")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path = args.output or Path(f"{program.name}_{args.data}_{args.schedule}.npz")
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
        yield from perceptron.train_together(todo, args.device)
        return
    with ProcessPoolExecutor(args.jobs) as pool:
        yield from zip(todo, pool.map(PROGRAMS[args.data].train, todo), strict=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_quality.record",
        description=__doc__.splitlines()[0] if __doc__ else "",
    )
    add = parser.add_argument
    add("--data", choices=list(PROGRAMS), default="digits", help="and with it what is trained")
    add("--schedule", choices=list(SCHEDULES), default="cosine", help="of the learning rate")
    add("--configurations", type=int, default=1000)
    add("--epochs", type=int, default=52)
    add("--seed", type=int, default=0)
    add("--jobs", type=int, default=1, help="trainings at once, each on one thread")
    add("--device", type=torch.device, help="such as cuda: all at once on it; perceptrons alone")
    add("--output", type=Path, help="PROGRAM_DATA_SCHEDULE.npz where none is named")
    return parser


if __name__ == "__main__":
    main()
