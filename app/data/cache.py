"""A cache of results for unchanged data."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

T = TypeVar("T")
_MAX_KEPT = 64


class Kept:
    """A cache of results by key, each with the objects from which it was made. Thread-safe.

    Reads return the same object while nothing has changed, so that identity is sufficient.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[tuple[object, ...], Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, sources: tuple[object, ...], make: Callable[[], T]) -> T:
        """The cached result for this key and these objects, or a new one."""
        with self._lock:
            held = self._kept.get(key)
        if held is not None and all(a is b for a, b in zip(held[0], sources, strict=True)):
            return cast("T", held[1])
        made = make()
        with self._lock:
            self._kept[key] = (sources, made)
            self._kept.move_to_end(key)
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return made
