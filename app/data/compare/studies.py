"""The best values of several studies, and a band over runs that differ by a seed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.app.data.columns import Floats
from tuner.app.data.convergence.series import BestSoFar

#: `digits-3`, `digits_seed3`, `digits.seed-3`
_SEED = re.compile(r"[-_. ]*(?:(?<=[-_. ])(?:seed|run)[-_. ]?)?\d+$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Band:
    """Several runs of one study, at the same places."""

    x: Floats
    median: Floats
    low: Floats
    high: Floats
    #: The studies that it is of.
    names: tuple[str, ...]


def stem_of(name: str) -> str:
    """The name without a trailing number; the whole name if nothing else is left."""
    return _SEED.sub("", name) or name


def seed_groups(names: Sequence[str]) -> dict[str, list[str]]:
    """Names by stem, in order. A study whose stem is another study's name belongs to that."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(stem_of(name), []).append(name)
    return groups


def band_of(lines: Mapping[str, BestSoFar]) -> Band | None:
    """From the first place at which each run has a best value to the end of the shortest run.

    None if there is no such range.
    """
    there = {name: line for name, line in lines.items() if len(line.x)}
    if not there:
        return None
    start = max(float(line.x[0]) for line in there.values())
    end = min(float(line.x[-1]) for line in there.values())
    if start > end:
        return None
    places = np.unique(np.concatenate([[start, end], *(line.x for line in there.values())]))
    places = places[(places >= start) & (places <= end)]
    rows = np.array(
        [line.y[np.searchsorted(line.x, places, side="right") - 1] for line in there.values()]
    )
    return Band(
        x=places,
        median=np.median(rows, axis=0),
        low=rows.min(axis=0),
        high=rows.max(axis=0),
        names=tuple(there),
    )
