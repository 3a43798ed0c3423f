"""PBT by name in a study file: a population in which weak members become copies of strong ones."""

from __future__ import annotations

import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial

#: A member may be in the upper quantile or in the lower one, and not in both.
_MOST_QUANTILE = 0.5


class PbtPruner(BasePruner):
    """Population-based training (Jaderberg et al., arXiv:1711.09846), asynchronous.

    After each `interval` steps a member of the population is compared with the latest results of
    the others. A weak member ends there and is replaced by a copy: a new trial that continues from
    the checkpoint of a strong member, with slightly changed parameters. Under Optuna alone, which
    copies no checkpoints, it prunes nothing.

    Args:
        population: Number of members that train in parallel.
        interval: Steps between comparisons; a copy trains this many before its first.
        quantile: Fraction of the population that counts as weak, and as strong; at most a half.
        resample: Probability that a parameter of a copy is drawn again, 0 to 1.
        factor: Otherwise a number is multiplied or divided by this, with equal probability.
        keep: Names of parameters that a copy inherits unchanged, such as those that shape the
            network.
        max_resource: Steps of a whole trial, at which no member is compared. With `"auto"` it is
            known once a trial has completed.
        seed: Seed of all draws; by default the study's.

    Raises:
        ValueError: If a value is out of its range.
    """

    def __init__(
        self,
        population: int = 8,
        interval: int = 5,
        quantile: float = 0.25,
        resample: float = 0.25,
        factor: float = 1.2,
        keep: list[str] | None = None,
        max_resource: str | int = "auto",
        seed: int = 0,
    ) -> None:
        if population < 2:
            raise ValueError(f"population is {population}, but must be at least 2.")
        if interval < 1:
            raise ValueError(f"interval is {interval}, but must be at least 1.")
        if not 0.0 < quantile <= _MOST_QUANTILE:
            raise ValueError(f"quantile is {quantile}, but must be above 0 and at most 0.5.")
        if population * quantile < 1.0:
            raise ValueError(
                f"quantile is {quantile}, which is less than one of a population of {population}: "
                f"no member would ever be replaced. Set at least {1 / population:.3g}, or a larger "
                "population."
            )
        if not 0.0 <= resample <= 1.0:
            raise ValueError(f"resample is {resample}, but must be from 0 to 1.")
        if not 1.0 < factor < float("inf"):
            raise ValueError(f"factor is {factor}, but must be a number above 1.")
        self.population = population
        self.interval = interval
        self.quantile = quantile
        self.resample = resample
        self.factor = factor
        self.keep = _read_keep(keep)
        self.max_resource = _read_length(max_resource, interval)
        self.seed = seed

    @property
    def least_rung(self) -> int:
        """The first step at which members are compared."""
        return self.interval

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Never: a member is replaced only once a checkpoint to copy exists."""
        return False


def _read_keep(keep: object) -> frozenset[str]:
    if keep is None:
        return frozenset()
    if not isinstance(keep, list) or not all(isinstance(name, str) for name in keep):
        raise ValueError(f"keep is {keep!r}, but must be a list of parameters, such as [width].")
    return frozenset(keep)


def _read_length(max_resource: str | int, interval: int) -> int | None:
    if max_resource == "auto":
        return None
    if isinstance(max_resource, str):
        raise ValueError(f"max_resource is {max_resource!r}, but must be a number or auto.")
    if max_resource <= interval:
        raise ValueError(
            f"max_resource is {max_resource}, but must be above interval, which is {interval}: "
            "no member would ever be compared."
        )
    return max_resource
