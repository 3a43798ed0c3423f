"""Import times of the user's own modules, without the libraries that they import."""

from __future__ import annotations

import builtins
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

#: Longer imports are shown to the user: each start takes this time.
LONG_S = 5.0


class ImportTimes:
    """Measures the import times of modules, as a context manager.

    Python calls `builtins.__import__` for every import statement: the time of an import is not
    counted for the module that contains the statement.

    Args:
        clock: The time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._imports_s: dict[str, float] = defaultdict(float)
        self._before: Callable[..., Any] = builtins.__import__

    def __enter__(self) -> ImportTimes:
        self._before = builtins.__import__
        builtins.__import__ = self._import
        return self

    def __exit__(self, *_: object) -> None:
        builtins.__import__ = self._before

    def own_s(self, module: str, whole_s: float) -> float:
        """Seconds of a module's own code.

        Args:
            module: Its name.
            whole_s: Seconds of its whole import.
        """
        return whole_s - self._imports_s[module]

    def _import(self, name: str, globals: Any = None, *arguments: Any, **named: Any) -> Any:
        importer = (globals or {}).get("__name__", "")
        start_s = self._clock()
        try:
            return self._before(name, globals, *arguments, **named)
        finally:
            self._imports_s[importer] += self._clock() - start_s


def long_import(module: str, own_s: float) -> str:
    """A note on a module with a long import; empty for others."""
    if own_s < LONG_S:
        return ""
    return (
        f"Importing {module} took {own_s:.0f} s without the libraries that it imports, and every "
        "start takes that again. Move what works or loads data into the function, or below "
        'if __name__ == "__main__":'
    )
