"""Filters that people type: `lr < 0.01 and optimizer == sgd and loss <= 0.3`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tuner.app.data.columns import Flags
from tuner.app.data.trials.table import Cell
from tuner.errors import ConfigError

_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
_CONDITION = re.compile(r"^\s*(?P<name>.+?)\s*(?P<sign><=|>=|==|!=|<|>|=)\s*(?P<value>.+?)\s*$")
_AND = re.compile(r"\s+and\s+|\s*,\s*", re.IGNORECASE)


def rows_where(text: str, table: Mapping[str, Sequence[Cell]], n_rows: int) -> Flags:
    """Which rows of a table pass every condition; a cell that is empty passes none.

    Args:
        text: Conditions with `and` between; empty: all rows pass.
        table: Columns by their titles.
        n_rows: Of the table.

    Raises:
        ConfigError: With what is allowed.
    """
    passed = np.ones(n_rows, dtype=np.bool_)
    for condition in filter(None, _AND.split(text.strip())):
        found = _CONDITION.match(condition)
        if found is None:
            problem = f"has {condition!r}. A condition is COLUMN SIGN VALUE, such as lr < 0.01."
            raise ConfigError(problem, key="Where")
        cells = _column(found["name"], table)
        compare, value = _OPERATORS[found["sign"]], found["value"].strip("'\"")
        passed &= np.array([_passes(cell, compare, value) for cell in cells], dtype=np.bool_)
    return passed


def _column(name: str, table: Mapping[str, Sequence[Cell]]) -> Sequence[Cell]:
    titles = {title.lower(): title for title in table}
    if name.lower() not in titles:
        raise ConfigError(f"has no column {name!r}. There are: {', '.join(table)}.", key="Where")
    return table[titles[name.lower()]]


def _passes(cell: Cell, compare: Callable[[Any, Any], bool], value: str) -> bool:
    if cell is None:
        return False
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        try:
            return bool(compare(cell, float(value)))
        except ValueError:
            return False
    return bool(compare(str(cell).lower(), value.lower()))
