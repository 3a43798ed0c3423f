"""A training to record, and what it has shown."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


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
        values: [n_epochs], after each epoch; larger is better.
        seconds: [n_epochs], of one processor, since it began.
    """

    values: list[float]
    seconds: list[float]


@dataclass(frozen=True)
class Recorder:
    """Takes the values of a training as it goes, with their times."""

    _began_s: float = field(default_factory=time.process_time)
    trained: Trained = field(default_factory=lambda: Trained(values=[], seconds=[]))

    def take(self, value: float) -> None:
        self.trained.values.append(value)
        self.trained.seconds.append(time.process_time() - self._began_s)
