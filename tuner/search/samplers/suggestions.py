"""The configurations that a study's sampler still offers."""

from __future__ import annotations

from optuna.samplers import BaseSampler

from tuner.search.optuna_study import TunedStudy
from tuner.search.samplers.out_of_process.sampler import OutOfProcessSampler
from tuner.search.samplers.prior import PriorSampler
from tuner.search.samplers.resumable import GridSampler
from tuner.store.optuna_tables.storage import BufferedStorage


class Suggestions:
    """Gets suggestions from the study's sampler, which may be replaced at any time.

    Args:
        study: Has the sampler.
        storage: Holds the study.
    """

    def __init__(self, study: TunedStudy, storage: BufferedStorage) -> None:
        self._study = study
        self._storage = storage
        if isinstance(study.sampler, GridSampler):
            study.begin = self._begin_point

    @property
    def limit(self) -> int | None:
        """The number of configurations that the sampler has in all; None for no end."""
        sampler = self._study.sampler
        return sampler.n_points if isinstance(sampler, GridSampler) else None

    def are_exhausted(self, n_waiting: int) -> bool:
        """Whether the sampler has no configuration left.

        Args:
            n_waiting: Trials that wait for a device.
        """
        sampler = self._study.sampler
        if isinstance(sampler, GridSampler):
            return not n_waiting and not sampler.has_point_left(self._study)
        return self._study.is_exhausted

    @property
    def is_ready(self) -> bool:
        """Whether the next suggestion needs no wait; if not, its computation starts now."""
        sampler = self._study.sampler
        if isinstance(sampler, PriorSampler) and sampler.is_next(self._study):
            return True
        inner = _without_prior(sampler)
        return not isinstance(inner, OutOfProcessSampler) or inner.is_ready(self._study)

    @property
    def duration_s(self) -> float:
        """Seconds that the newest suggestion took in a process of its own."""
        inner = _without_prior(self._study.sampler)
        return inner.took_s if isinstance(inner, OutOfProcessSampler) else 0.0

    def _begin_point(self) -> int | None:
        sampler = self._study.sampler
        assert isinstance(sampler, GridSampler), "a study's sampler stays of its kind"
        return sampler.begin(self._study, self._storage)


def _without_prior(sampler: BaseSampler) -> BaseSampler:
    return sampler.inner if isinstance(sampler, PriorSampler) else sampler
