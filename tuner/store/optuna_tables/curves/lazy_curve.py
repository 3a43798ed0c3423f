"""The curves of trials that have ended: a sixth of a dict's memory, read when first looked at.

Optuna keeps a trial's reports in a dict, 7 KB for a hundred. A trial that has ended has no more
to come, so its values lie in an array here, and its steps, mostly those of every other trial, in
a `range` or in a tuple that all share. Most samplers never look at a curve, so those of a study
that was stored before are fetched on the first look, a batch of trials at a time, and forgotten
again where they are many (`memory.py`).
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping, ValuesView
from functools import lru_cache
from typing import Any, TypeAlias, cast

Steps: TypeAlias = range | tuple[int, ...]

#: Trials per batch. Larger batches take less time per trial, but hold more row objects at once.
BATCH_SIZE = 500


class Curve(Mapping[int, float]):
    """A trial's reports by step.

    Equal to a dict with the same items, but immutable, so that a copy is itself. A NaN equals a
    NaN: in a dict it is the same object.
    """

    __slots__ = ("_batch", "_steps", "_trial_id", "_values")

    def __init__(self, steps: Steps, values: array[float]) -> None:
        self._steps = _shared(steps)
        self._values = values
        #: With which it is still to be read, as this trial's.
        self._batch: Batch | None = None
        self._trial_id = 0

    @classmethod
    def of(cls, curve: Mapping[int, float]) -> Curve:
        if isinstance(curve, cls):
            return curve
        return cls(tuple(curve), array("d", list(curve.values())))

    # The look-ups are written for speed: a pruner makes two of them for each trial and report.

    def __getitem__(self, step: int) -> float:
        if self._batch is not None:
            self._batch.read()
        try:
            return self._values[self._steps.index(step)]
        except ValueError:
            raise KeyError(step) from None

    def __contains__(self, step: object) -> bool:
        if self._batch is not None:
            self._batch.read()
        return step in self._steps

    def __iter__(self) -> Iterator[int]:
        return iter(self._read()._steps)

    def __len__(self) -> int:
        return len(self._read()._steps)

    # Those of `Mapping` look each step up.

    def items(self) -> ItemsView[int, float]:
        return self._as_dict().items()

    def values(self) -> ValuesView[float]:
        return self._as_dict().values()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Mapping):
            return NotImplemented
        return len(self) == len(other) and all(
            step in other and _same(value, other[step]) for step, value in self.items()
        )

    # It is equal to dicts, which have none.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._as_dict())

    def __copy__(self) -> Curve:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Curve:
        return self

    def __reduce__(self) -> tuple[type[dict[int, float]], tuple[dict[int, float]]]:
        # A process that unpickles a trial may have neither this class nor the database.
        return dict, (self._as_dict(),)

    @property
    def is_in_memory(self) -> bool:
        """Whether an access reads nothing from the database."""
        return self._batch is None

    def _as_dict(self) -> dict[int, float]:
        self._read()
        return dict(zip(self._steps, self._values, strict=True))

    def _read(self) -> Curve:
        if self._batch is not None:
            self._batch.read()
        return self


class Batch:
    """Curves that are fetched together, when one of them is first looked at.

    Args:
        trial_ids: Whose they are; the trials must have ended.
        fetch: Gives the curves of those that have one. What it raises comes out of the look, and
            the next look tries again.
        when_read: Takes this batch and the curves, by trial, that were just fetched.
    """

    __slots__ = ("_curves", "_fetch", "_when_read")

    def __init__(
        self,
        trial_ids: Collection[int],
        fetch: Callable[[Collection[int]], Mapping[int, Curve]],
        when_read: Callable[[Batch, Mapping[int, Curve]], None] = lambda _batch, _curves: None,
    ) -> None:
        self._fetch = fetch
        self._when_read = when_read
        self._curves = {trial_id: self._unread(trial_id) for trial_id in trial_ids}

    def curves(self) -> Mapping[int, Curve]:
        """Curves that were not fetched yet, by trial."""
        return dict(self._curves)

    def read(self, trial_ids: Collection[int] | None = None) -> None:
        """Fetches some curves, or all that are left."""
        wanted = tuple(self._curves) if trial_ids is None else trial_ids
        found, read = self._fetch(wanted), {}
        for trial_id in wanted:
            read[trial_id] = curve = self._curves.pop(trial_id)
            if trial_id in found:
                curve._steps, curve._values = found[trial_id]._steps, found[trial_id]._values
            curve._batch = None
        self._when_read(self, read)

    def forget(self, curves: Mapping[int, Curve]) -> None:
        """Drops the values of curves; the next look fetches them.

        Args:
            curves: By trial. The database has them.
        """
        for trial_id, curve in curves.items():
            curve._steps, curve._values = (), _NO_VALUES
            curve._batch, curve._trial_id = self, trial_id
            self._curves[trial_id] = curve

    def _unread(self, trial_id: int) -> Curve:
        curve = Curve((), _NO_VALUES)
        curve._batch, curve._trial_id = self, trial_id
        return curve


def read_ahead(curves: Iterable[Mapping[int, float]]) -> None:
    """Fetches curves that will be accessed soon, without the rest of their batches."""
    wanted: defaultdict[Batch, set[int]] = defaultdict(set)
    for curve in curves:
        if isinstance(curve, Curve) and curve._batch is not None:
            wanted[curve._batch].add(curve._trial_id)
    for batch, trial_ids in wanted.items():
        batch.read(trial_ids)


_NO_VALUES = array("d")


def compact(curve: Mapping[int, float]) -> dict[int, float]:
    """The curve of a trial that has ended, as one may assign it to a trial of Optuna's.

    Optuna annotates it as a dict, but reads it as any mapping.
    """
    return cast(dict[int, float], Curve.of(curve))


def _same(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)


# Few different ones, mostly: a range for each step at which trials ended.
@lru_cache(maxsize=4096)
def _shared(steps: Steps) -> Steps:
    if isinstance(steps, tuple) and len(steps) > 1 and (stride := steps[1] - steps[0]) > 0:
        regular = range(steps[0], steps[0] + stride * len(steps), stride)
        if tuple(regular) == steps:
            return regular
    return steps
