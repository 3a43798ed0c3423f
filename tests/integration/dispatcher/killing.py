"""A dispatcher that is gone in the middle of what it does, as after `kill -9`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

#: What is called, for which time, and whether it was still done.
Place = tuple[type, str, int, bool]


class Killed(BaseException):
    """The process is gone."""


def places(*calls: tuple[type, str, int]) -> dict[str, Place]:
    """Before and after calls of methods, by a name for people."""
    return {
        f"{cls.__name__}.{name} {n} {'after' if is_done else 'before'}": (cls, name, n, is_done)
        for cls, name, n in calls
        for is_done in (False, True)
    }


@contextmanager
def killed_at(
    monkeypatch: pytest.MonkeyPatch, cls: type, name: str, n_last: int, is_done: bool
) -> Iterator[None]:
    """What is done inside must come to a place, and ends there."""
    original, n_calls = getattr(cls, name), 0

    def dying(*arguments: Any, **named: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        if n_calls == n_last and not is_done:
            raise Killed
        result = original(*arguments, **named)
        if n_calls == n_last:
            raise Killed
        return result

    with monkeypatch.context() as patched:
        patched.setattr(cls, name, dying)
        with pytest.raises(Killed):
            yield
