"""Many rows as columns: an array for each field, with a value for each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]
C = TypeVar("C", bound="Columns")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """A table with one array per field; rows are along the first axis."""

    def where(self: C, chosen: Flags | Numbers) -> C:
        """Some of the rows, or all in another order."""
        return type(self)(**{each.name: getattr(self, each.name)[chosen] for each in fields(self)})


def joined(parts: Sequence[C]) -> C:
    """Concatenates the rows of tables.

    Args:
        parts: At least one table.
    """
    names = [each.name for each in fields(parts[0])]
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return type(parts[0])(**columns)
