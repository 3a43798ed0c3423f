"""PBT by name in a study file: a population in which weak members become copies of strong ones."""

from __future__ import annotations

import optuna
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial

#: A member may be in the upper quantile or in the lower one, and not in both.
_MOST_QUANTILE = 0.5


class PbtPruner(BasePruner):
    """Population-based training (Jaderberg et al., arXiv:1711.09846), without waiting.

    Each `interval` steps a member of the population is compared with what the others had when they
    were compared last. One of the weakest ends there, and a copy takes its place: a new trial that
    continues from the checkpoint of one of the strongest, with its parameters changed a little. By
    itself (in Optuna, where nobody copies) it prunes nothing.

    Args:
        population: How many members train in parallel.
        interval: Steps from one comparison to the next; a copy trains as many before its first.
        quantile: Which part of the population is weak, and which is strong, up to a half.
        resample: How probable it is that a parameter of a copy is drawn again, 0 to 1.
        factor: Else a number is multiplied with it or divided by it, either as probably.
        keep: Names of parameters that a copy has as its parent has them: those that shape the
            network, say.
        max_resource: Steps of a whole trial; nobody is compared there. With `"auto"` that is known
            once one has completed.
        seed: Of all draws; the study's own where the file gives none.

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
        """Never: who is replaced ends by itself, once there is something to begin a copy from."""
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
