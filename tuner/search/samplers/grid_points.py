"""The points of a grid, identified by their values. Pure.

Optuna identifies a point by its place in a shuffled list, which changes with the seed and with the
values of the grid. The values of a trial stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from tuner.search_spaces import Scalar

#: System attribute of a trial: the point that it tries, by name of the parameter.
POINT_ATTR = "tuner:grid_point"
#: System attribute of an enqueued trial: its fixed values.
FIXED_ATTR = "fixed_params"

Point: TypeAlias = Mapping[str, Scalar | None]
Key: TypeAlias = tuple[tuple[str, object], ...]
"""The values of a point, in the order of the grid's parameters."""


class GridPoints:
    """All points of a grid in the order in which they are tried, and which are left.

    Args:
        names: Names of the parameters.
        points: The values of each point, in the order of `names`. Duplicates count once.
    """

    def __init__(self, names: Sequence[str], points: Iterable[Sequence[Scalar | None]]) -> None:
        self._names = tuple(names)
        self._points = {_key(values): tuple(values) for values in points}
        self._order = list(self._points)
        self._tried: set[Key] = set()
        #: All points before this place of the order are tried.
        self._n_tried_in_a_row = 0

    def __len__(self) -> int:
        return len(self._order)

    def note(self, *sources: Mapping[str, object]) -> bool:
        """Marks a point as tried.

        Args:
            sources: Values of one trial. Those of an earlier source take precedence.

        Returns:
            Whether the sources name a value for every parameter of the grid.
        """
        values: dict[str, object] = {}
        for source in reversed(sources):
            values.update(source)
        if not all(name in values for name in self._names):
            return False
        self._tried.add(_key([values[name] for name in self._names]))
        return True

    @property
    def n_tried(self) -> int:
        """Number of grid points tried; points off the grid do not count."""
        return sum(key in self._points for key in self._tried)

    def next(self, fixed: Point | None = None) -> Point | None:
        """The first point that was not tried; None if all were.

        Args:
            fixed: Values that the point must have.
        """
        for key in self._left():
            if not fixed or self._has(key, fixed):
                return self._named(key)
        return None

    def completed(self, fixed: Point) -> Point:
        """A point with the given values, if possible one that is left."""
        known = {name: value for name, value in fixed.items() if name in self._names}
        point = self.next(known) or self.next() or self._named(self._order[0])
        return {**point, **known}

    def _left(self) -> Iterator[Key]:
        order = self._order
        while self._n_tried_in_a_row < len(order) and order[self._n_tried_in_a_row] in self._tried:
            self._n_tried_in_a_row += 1
        later = (order[place] for place in range(self._n_tried_in_a_row, len(order)))
        return (key for key in later if key not in self._tried)

    def _has(self, key: Key, fixed: Point) -> bool:
        of_name = dict(zip(self._names, key, strict=True))
        return all(of_name[name] == _comparable(value) for name, value in fixed.items())

    def _named(self, key: Key) -> Point:
        return dict(zip(self._names, self._points[key], strict=True))


def _key(values: Iterable[object]) -> Key:
    return tuple(map(_comparable, values))


def _comparable(value: object) -> tuple[str, object]:
    """In Python `True == 1`, and NaN is not equal to itself."""
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, float) and math.isnan(value):
        return "nan", None
    return "", value
