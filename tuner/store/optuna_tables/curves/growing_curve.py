"""The curve of a running trial, with constant time per report.

References to an older trial must not see its curve change, so each report makes a new curve. To
copy all reports each time is quadratic. Instead the newest curve and the older ones share one dict,
and each knows how many items are its own. An older curve copies its items when it is read.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, MutableMapping, ValuesView
from itertools import islice
from typing import Any, cast


class GrowingCurve(MutableMapping[int, float]):
    """Reports by step, equal to the dict with the same items.

    Args:
        items: From now on this curve's and its successors' own.
    """

    __slots__ = ("_items", "_n")

    def __init__(self, items: dict[int, float]) -> None:
        #: Later curves append to it and never change existing items.
        self._items = items
        self._n = len(items)

    def plus(self, step: int, value: float) -> GrowingCurve:
        """A curve with one more or one changed report; this one is unchanged."""
        items = self._own()
        if step in items:
            items = dict(items)
        items[step] = value
        return GrowingCurve(items)

    def __getitem__(self, step: int) -> float:
        return self._own()[step]

    def __contains__(self, step: object) -> bool:
        return step in self._own()

    def __iter__(self) -> Iterator[int]:
        return islice(self._items, self._n)

    def __len__(self) -> int:
        return self._n

    # Optuna's own trial notes a report in the curve that it was given.

    def __setitem__(self, step: int, value: float) -> None:
        self._items = {**self._own(), step: value}
        self._n = len(self._items)

    def __delitem__(self, step: int) -> None:
        items = dict(self._own())
        del items[step]
        self._items, self._n = items, len(items)

    # Views of a copy: those of the shared dict would grow. `Mapping` looks each step up.

    def items(self) -> ItemsView[int, float]:
        return self._copy().items()

    def values(self) -> ValuesView[float]:
        return self._copy().values()

    def __repr__(self) -> str:
        return repr(self._copy())

    def __copy__(self) -> dict[int, float]:
        return self._copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[int, float]:
        return self._copy()

    def __reduce__(self) -> tuple[type[dict[int, float]], tuple[dict[int, float]]]:
        # A process that unpickles a trial may not have this class.
        return dict, (self._copy(),)

    def _own(self) -> dict[int, float]:
        if len(self._items) != self._n:
            self._items = self._copy()
        return self._items

    def _copy(self) -> dict[int, float]:
        if len(self._items) == self._n:
            return dict(self._items)
        return dict(islice(self._items.items(), self._n))


def grown(curve: Mapping[int, float], step: int, value: float) -> dict[int, float]:
    """A curve with one report more, as one may assign it to a trial of Optuna's.

    Optuna annotates it as a dict, but reads it as any mapping.
    """
    growing = curve if isinstance(curve, GrowingCurve) else GrowingCurve(dict(curve))
    return cast(dict[int, float], growing.plus(step, value))
