"""User filters: `lr < 0.01 and (optimizer == sgd or epochs in (10, 20))`.

    expression  = all ("or" all)*
    all         = condition (("and" | ",") condition)*
    condition   = "(" expression ")" | COLUMN SIGN VALUE | COLUMN ["not"] "in" "(" VALUE, ... ")"

A column is written as its title, in any case; if its title contains an operator, it must be quoted,
and so must a value with `and`, `or`, a comma or a parenthesis.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

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
_SIGN = re.compile(r"<=|>=|==|!=|<|>|=")
_IN = re.compile(r"(not\s+)?in\s*(?=\()", re.IGNORECASE)
_AND = re.compile(r"and\b|,", re.IGNORECASE)
_OR = re.compile(r"or\b", re.IGNORECASE)
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
#: The text up to the end of a condition. A word such as `order` ends none.
_BARE = re.compile(r"(?:(?!\s+(?:and|or)\b)[^,()'\"])+", re.IGNORECASE)
_BLANK = re.compile(r"\s*")
_KEY = "Filter"
_MAX_DEPTH = 50


def rows_where(text: str, table: Mapping[str, Sequence[Cell]], n_rows: int) -> Flags:
    """Rows of a table that pass; an empty cell passes no condition.

    Args:
        text: An expression; if empty, all rows pass.
        table: Columns by title.
        n_rows: Number of rows.

    Raises:
        ConfigError: If a part is invalid, with the allowed syntax.
    """
    if not text.strip():
        return np.ones(n_rows, dtype=np.bool_)
    return _Reader(text, table).read()


class _Reader:
    """Reads one expression from left to right."""

    def __init__(self, text: str, table: Mapping[str, Sequence[Cell]]) -> None:
        self._text = text
        self._table = table
        # Of two titles that fit the longer one is meant.
        self._titles = sorted(table, key=len, reverse=True)
        self._at = 0
        self._depth = 0

    def read(self) -> Flags:
        passed = self._any()
        if self._rest():
            self._refuse()
        return passed

    def _any(self) -> Flags:
        passed = self._all()
        while self._take(_OR):
            passed = passed | self._all()
        return passed

    def _all(self) -> Flags:
        passed = self._condition()
        while self._take(_AND):
            passed = passed & self._condition()
        return passed

    def _condition(self) -> Flags:
        if self._rest().startswith("("):
            return self._in_parentheses()
        title = self._column()
        if found := self._take(_IN):
            passed = np.zeros(len(self._table[title]), dtype=np.bool_)
            for each in self._values():
                passed |= self._compare(title, operator.eq, each)
            is_there = np.array([cell is not None for cell in self._table[title]], dtype=np.bool_)
            return is_there & ~passed if found[1] else passed
        sign = self._take(_SIGN)
        if sign is None:
            self._refuse()
        return self._compare(title, _OPERATORS[sign[0]], self._value())

    def _in_parentheses(self) -> Flags:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ConfigError(f"has more than {_MAX_DEPTH} parentheses in each other.", key=_KEY)
        self._at += 1
        passed = self._any()
        self._close()
        self._depth -= 1
        return passed

    def _values(self) -> list[str]:
        self._at += 1
        values = [self._value()]
        while self._rest().startswith(","):
            self._at += 1
            values.append(self._value())
        self._close()
        return values

    def _close(self) -> None:
        if not self._rest().startswith(")"):
            raise ConfigError(f"lacks a ) before {self._rest() or 'its end'!r}.", key=_KEY)
        self._at += 1

    def _column(self) -> str:
        rest = self._rest()
        if quoted := _QUOTED.match(rest):
            name = quoted[1] if quoted[1] is not None else quoted[2]
            self._at += quoted.end()
            for title in self._titles:
                if title.lower() == name.lower():
                    return title
            self._no_column(name)
        for title in self._titles:
            after = rest[len(title) :]
            if rest.lower().startswith(title.lower()) and re.match(r"\s|[<>=!]|$", after):
                self._at += len(title)
                return title
        name = re.split(r"[<>=!,]|\s+(?:not\s+)?in\s*\(", rest, maxsplit=1)[0].strip()
        if name == rest.strip():
            self._refuse()
        self._no_column(name)

    def _value(self) -> str:
        rest = self._rest()
        if quoted := _QUOTED.match(rest):
            self._at += quoted.end()
            return quoted[1] if quoted[1] is not None else quoted[2]
        bare = _BARE.match(rest)
        if bare is None or not bare[0].strip():
            self._refuse()
        self._at += bare.end()
        return bare[0].strip()

    def _compare(self, title: str, compare: Callable[[Any, Any], bool], value: str) -> Flags:
        cells = self._table[title]
        wanted: float | str = value.lower()
        if _is_numeric(cells):
            try:
                wanted = float(value)
            except ValueError:
                problem = f"compares {title!r}, which is a number, with {value!r}."
                raise ConfigError(problem, key=_KEY) from None
        return np.array([_passes(cell, compare, wanted) for cell in cells], dtype=np.bool_)

    def _rest(self) -> str:
        blank = _BLANK.match(self._text, self._at)
        self._at = blank.end() if blank else self._at
        return self._text[self._at :]

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._rest())
        if found:
            self._at += found.end()
        return found

    def _no_column(self, name: str) -> NoReturn:
        raise ConfigError(f"has no column {name!r}. There are: {', '.join(self._table)}.", key=_KEY)

    def _refuse(self) -> NoReturn:
        part = self._rest() or "nothing more"
        problem = (
            f"can't be read at {part!r}. A condition is COLUMN SIGN VALUE, such as lr < 0.01, or "
            "COLUMN in (VALUE, VALUE); conditions are joined by `and` or `or`."
        )
        raise ConfigError(problem, key=_KEY)


def _is_numeric(cells: Sequence[Cell]) -> bool:
    kinds = {type(cell) for cell in cells if cell is not None}
    return bool(kinds) and kinds <= {int, float}


def _passes(cell: Cell, compare: Callable[[Any, Any], bool], wanted: float | str) -> bool:
    if cell is None:
        return False
    if isinstance(wanted, str):
        return bool(compare(str(cell).lower(), wanted))
    return bool(compare(cell, wanted))
