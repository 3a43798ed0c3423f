"""Limits the number of curve values in memory: others are read again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.store.optuna_tables.curves.lazy_curve import BATCH_SIZE, Batch, Curve

#: 16 MB. A model of curves reads some hundred, the median pruner each of them once.
MOST_VALUES = 2_000_000


@dataclass(slots=True)
class _Chunk:
    """Curves that were loaded together."""

    batch: Batch
    curves: Mapping[int, Curve]
    n_values: int
    #: Whether the database has them.
    is_stored: bool


class CurveMemory:
    """Curves of ended trials; the oldest are evicted when the memory is full.

    Args:
        fetch: Reads the curves of trials from the database.
        limit: Maximum number of values.
    """

    def __init__(
        self, fetch: Callable[[Collection[int]], Mapping[int, Curve]], limit: int = MOST_VALUES
    ) -> None:
        self._fetch = fetch
        self._limit = limit
        self._chunks: deque[_Chunk] = deque()
        self._ended: dict[int, Curve] = {}
        self._n_values = 0

    def unread(self, trial_ids: Sequence[int]) -> Iterator[tuple[int, Curve]]:
        """Curves by trial, read on first access.

        An access raises KeyError if the trial was deleted meanwhile, and the errors of the
        database.
        """
        for begin in range(0, len(trial_ids), BATCH_SIZE):
            some = trial_ids[begin : begin + BATCH_SIZE]
            yield from Batch(some, self._fetch, self._take_read).curves().items()

    def add_ended(self, trial_id: int, curve: Mapping[int, float]) -> None:
        """Adds the curve of a trial that has ended here; the database may not have it yet."""
        if not isinstance(curve, Curve) or not curve.is_in_memory:
            return
        self._ended[trial_id] = curve
        if len(self._ended) >= BATCH_SIZE:
            ended, self._ended = self._ended, {}
            self._add(_Chunk(Batch((), self._fetch, self._take_read), ended, 0, is_stored=False))

    def written(self, waiting: Callable[[], Collection[int]]) -> None:
        """Allows the eviction of curves that the database has completely.

        Args:
            waiting: Returns the trials with unwritten reports.
        """
        if self._n_values <= self._limit:
            return
        lacking = set(waiting())
        for chunk in self._chunks:
            chunk.is_stored = chunk.is_stored or lacking.isdisjoint(chunk.curves)
        self._make_room()

    def _take_read(self, batch: Batch, curves: Mapping[int, Curve]) -> None:
        self._add(_Chunk(batch, curves, 0, is_stored=True))
        self._make_room()

    def _add(self, chunk: _Chunk) -> None:
        chunk.n_values = sum(map(len, chunk.curves.values()))
        self._n_values += chunk.n_values
        self._chunks.append(chunk)

    def _make_room(self) -> None:
        # The newest ones are about to be accessed by the caller.
        while self._n_values > self._limit and len(self._chunks) > 1 and self._chunks[0].is_stored:
            oldest = self._chunks.popleft()
            self._n_values -= oldest.n_values
            oldest.batch.forget(oldest.curves)
