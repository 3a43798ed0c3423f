"""A trial's parameters, as training code reads them."""

from __future__ import annotations

import difflib
from typing import Any


class Params(dict[str, Any]):
    """The parameters of a trial, a dict: `params["lr"]` or `params.lr`."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(self._missing(name))

    def __missing__(self, name: str) -> Any:
        raise MissingParameter(self._missing(name))

    def _missing(self, name: str) -> str:
        close = difflib.get_close_matches(str(name), list(self), n=1)
        hint = _meant(close[0]) if close else "Add it to search_space in the study."
        known = ", ".join(self) or "none"
        return f"This trial has no parameter {name!r}. It has: {known}. {hint}"


def _meant(name: str) -> str:
    """As it is written in Python: `params.learning-rate` would be a difference."""
    if name.isidentifier():
        return f"Did you mean {name!r}?"
    return f'Write trial.params["{name}"].'


class MissingParameter(KeyError):
    """A parameter that the trial does not have; unlike KeyError its text is not in quotes."""

    def __str__(self) -> str:
        return str(self.args[0])
