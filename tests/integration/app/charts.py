"""Numbers out of a figure's JSON, in which arrays stand as bytes."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def numbers_of(column: Mapping[str, str] | Sequence[Any]) -> list[Any]:
    """A column of a trace, whichever way Plotly has written it."""
    if not isinstance(column, Mapping):
        return list(column)
    values = np.frombuffer(base64.b64decode(column["bdata"]), dtype=np.dtype(column["dtype"]))
    return list(values.tolist())
