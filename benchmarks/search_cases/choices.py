"""How much a model learns of choices that it has not seen together, by kernel.

    python -m benchmarks.search_cases.choices CURVES.npz ... --seeds 4

Configurations at random of a mostly categorical space (`benchmarks.search_quality.spoilt`), each
trained to its end; the rank correlation of what the model then predicts of others with what they
come to, and what two configurations have in common that differ in one choice. Prints Markdown.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.common.machine import this_machine
from benchmarks.search_quality.spoilt.ways import WAYS
from benchmarks.search_quality.tasks import Task, read_task
from tuner.search.samplers.curve_gp.encoding import Encoding
from tuner.search.samplers.curve_gp.gaussian_process import Array, GaussianProcess

N_KNOWN = (20, 40, 80)
_N_OTHERS = 300
_OF_RANGE, _OF_CHOICE = 0.6, 0.6 * math.sqrt(12.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """
    Attributes:
        of_choice: The likeliest length scale of choices before anything is known.
        is_shared: Whether a parameter's choices share one; each has its own otherwise.
    """

    of_choice: float
    is_shared: bool


KERNELS = {
    "a length for each choice, 0.6 (before)": Kernel(of_choice=_OF_RANGE, is_shared=False),
    "a length for each choice, 2.08": Kernel(of_choice=_OF_CHOICE, is_shared=False),
    "a length for each parameter, 0.6": Kernel(of_choice=_OF_RANGE, is_shared=True),
    "a length for each parameter, 2.08 (now)": Kernel(of_choice=_OF_CHOICE, is_shared=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Configurations and what they come to."""

    encoding: Encoding
    x: Array
    y: Array


def sample(task: Task, n: int, seed: int) -> Sample:
    """Configurations at random."""
    encoding = Encoding({each.name: each.distribution for each in task.space.parameters})
    rng = np.random.default_rng(seed)
    x = np.stack([encoding.draw(rng) for _ in range(n)])
    ends = [task.train(encoding.decode(row)).values[-1] for row in x]
    return Sample(encoding=encoding, x=x, y=np.array(ends))


def judged(kernel: Kernel, drawn: Sample, n_known: int) -> tuple[float, float]:
    """The rank correlation with the truth, and the correlation across one choice (at most)."""
    encoding, x, y = drawn.encoding, drawn.x[:n_known], drawn.y[:n_known]
    columns = encoding.columns
    of_choices = {columns[each[0]] for each in encoding.choices}
    lengths = [
        kernel.of_choice if place in of_choices else _OF_RANGE
        for place in range(len(encoding.space))
    ]
    if not kernel.is_shared:
        lengths, columns = [lengths[place] for place in columns], [*range(len(columns))]
    process = GaussianProcess(lengths, columns=columns)
    centred = (y - y.mean()) / y.std()
    process.fit(x, centred)
    means, _ = process.given(x, centred).predict(drawn.x[-_N_OTHERS:])
    found = process.length_scales
    alike = []
    for of_parameter in encoding.choices:
        first, second = (found[columns[place]] for place in of_parameter[:2])
        far = math.sqrt(5.0 * (first**-2 + second**-2))
        alike.append((1.0 + far + far * far / 3.0) * math.exp(-far))
    return _rank_correlation(means, drawn.y[-_N_OTHERS:]), statistics.fmean(alike)


def _rank_correlation(a: Array, b: Array) -> float:
    first, second = (each.argsort().argsort() - (len(each) - 1) / 2 for each in (a, b))
    return float((first * second).mean() / (first.std() * second.std()))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_cases.choices")
    parser.add_argument("curves", type=Path, nargs="+", help="tables of LCBench, as .npz files")
    parser.add_argument("--seeds", type=int, default=4)
    args = parser.parse_args(argv)
    tasks = [WAYS["categories"](read_task(path)) for path in args.curves]
    drawn = [
        sample(task, max(N_KNOWN) + _N_OTHERS, seed) for task in tasks for seed in range(args.seeds)
    ]
    print(f"{this_machine()}\n")
    print(f"| kernel | {' | '.join(f'{n} known' for n in N_KNOWN)} | across one choice |")
    print("|---" * (len(N_KNOWN) + 2) + "|")
    for name, kernel in KERNELS.items():
        found = {n: [judged(kernel, each, n) for each in drawn] for n in N_KNOWN}
        cells = [
            f"{statistics.fmean(a for a, _ in each):.2f} ± "
            f"{statistics.stdev(a for a, _ in each) / len(each) ** 0.5:.2f}"
            for each in found.values()
        ]
        alike = statistics.fmean(b for _, b in found[N_KNOWN[0]])
        print(f"| {name} | {' | '.join(cells)} | {alike:.2f} |", flush=True)


if __name__ == "__main__":
    main()
