"""What all ways to make a task harder share."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeAlias

import numpy as np

from benchmarks.search_quality.tasks import Task
from tuner.search_spaces import ParamValue

Spoil: TypeAlias = Callable[[Task], Task]
#: Of the names of categories and of the noise: the same in every search.
SEED = 0


def same(task: Task, **others: object) -> dict[str, Any]:
    """The fields of a task, some of them replaced."""
    return {each.name: getattr(task, each.name) for each in fields(Task)} | others


def lowest(task: Task) -> float:
    return float(np.nanmin(task.table.values))


def random_of(params: Mapping[str, ParamValue]) -> np.random.Generator:
    """The same for the same configuration."""
    return np.random.default_rng([SEED, zlib.crc32(repr(sorted(params.items())).encode())])
