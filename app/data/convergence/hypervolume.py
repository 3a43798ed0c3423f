"""Hypervolume of a Pareto front over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.app.data.columns import Floats, Numbers
from tuner.app.data.convergence.series import pareto_front
from tuner.app.data.trials.columns import TrialColumns
from tuner.store.optuna_compat import compute_hypervolume

#: Number of points: each requires the computation of a front.
_LOOKS = 40


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Hypervolume:
    """Optuna's hypervolume, in the product of the objectives' units."""

    numbers: Numbers
    volumes: Floats
    #: The worst value of each objective among trials that have completed.
    reference: tuple[float, ...]
    #: The best value of each objective among trials that have completed.
    ideal: tuple[float, ...]

    @property
    def shares(self) -> Floats:
        """The volumes as shares of the box between the reference and the ideal, 0 to 1."""
        box = float(np.prod(np.abs(np.subtract(self.reference, self.ideal))))
        return self.volumes / box if box > 0 else np.zeros(len(self.volumes))


def hypervolume(trials: TrialColumns, is_maximized: Sequence[bool]) -> Hypervolume | None:
    """None if no trial has completed."""
    able = trials.where(trials.is_candidate)
    if not len(able):
        return None
    signs = np.where(np.array(is_maximized, dtype=bool), -1.0, 1.0)
    worst = (able.values * signs).max(axis=0)
    ends = np.unique(np.linspace(1, len(able), min(_LOOKS, len(able))).astype(np.int64))
    volumes = np.zeros(len(ends))
    front = able.where(np.zeros(len(able), dtype=np.bool_))
    begin = 0
    for at, end in enumerate(ends.tolist()):
        # The front of all is that of the last front and of what is new.
        kept = np.isin(able.numbers, front.numbers)
        kept[begin:end] = True
        several = able.where(kept)
        front = several.where(pareto_front(several, is_maximized))
        losses = np.unique(front.values * signs, axis=0)
        volumes[at] = compute_hypervolume(losses, worst, assume_pareto=True)
        begin = end
    return Hypervolume(
        numbers=able.numbers[ends - 1],
        volumes=volumes,
        reference=tuple((worst * signs).tolist()),
        ideal=tuple(((able.values * signs).min(axis=0) * signs).tolist()),
    )
