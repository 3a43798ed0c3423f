"""Output formats of commands: plain tables, and strictly valid JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum

from optuna.trial import TrialState
from rich.cells import cell_len

from tuner.queries.trials.listing import WORDS
from tuner.terminal.times import instant

_GAP = "  "
_AS_THEY_ARE = (str, int, bool)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns. The last one may be longer; no line is truncated or wrapped."""
    lines = [header, *([_one_line(cell) for cell in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_line(line, widths) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)
    )
    return _GAP.join(padded).rstrip()


def _one_line(cell: str) -> str:
    return cell if cell.isprintable() else "".join(_printable(sign) for sign in cell)


def _printable(sign: str) -> str:
    return sign if sign.isprintable() else sign.encode("unicode_escape").decode()


def as_json(value: object) -> str:
    return json.dumps(plain(value), indent=2, ensure_ascii=False)


def as_json_lines(values: Iterable[object]) -> str:
    """A list with a line for each of its items, of which there may be many."""
    lines = ",\n".join(json.dumps(plain(each), ensure_ascii=False) for each in values)
    return f"[\n{lines}\n]" if lines else "[]"


def plain(value: object) -> object:
    """JSON values: times as text in UTC, `inf` and `nan` as text, states as words."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or type(value) in _AS_THEY_ARE:
        return value
    match value:
        case TrialState():
            return WORDS[value]
        case Enum():
            return value.value if isinstance(value.value, str) else value.name.lower()
        case datetime():
            return instant(value)
        case Mapping():
            return {str(plain(key)): plain(each) for key, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case _ if is_dataclass(value):
            return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    return value
