"""A trial's parameters, as training code reads them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Self

_NONE: Mapping[str, Any] = {}


class Params(dict[str, Any]):
    """The parameters of a trial, a dict: `params["lr"]` or `params.lr`.

    Values of the study file cannot be replaced: the trial would be stored with others than it was
    trained with. Keys can be added and removed.
    """

    #: Names whose values come from the study file or its sampler.
    _chosen: frozenset[str] = frozenset()

    def __init__(self, values: Mapping[str, Any] = _NONE, chosen: Iterable[str] = ()) -> None:
        super().__init__(values)
        object.__setattr__(self, "_chosen", frozenset(chosen))

    def __setattr__(self, name: str, value: Any) -> None:
        raise TypeError(_read_only(name, value))

    def __setitem__(self, name: str, value: Any) -> None:
        self._check(name, value)
        super().__setitem__(name, value)

    def update(self, *others: Any, **more: Any) -> None:
        """Like `dict.update`, except for names whose values cannot be replaced."""
        for name, value in dict(*others, **more).items():
            self[name] = value

    def __ior__(self, others: Any) -> Self:  # type: ignore[misc, override]  # `|` is a dict's.
        self.update(others)
        return self

    def _check(self, name: str, value: Any) -> None:
        # A copy is filled after its names are known.
        if name in self._chosen and name in self:
            raise TypeError(_read_only(name, value))

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


def _read_only(name: str, value: object) -> str:
    return (
        f"trial.params cannot be changed: {name} = {value!r:.40} would not be stored with the "
        "trial. To train with another value, change a copy: params = dict(trial.params), then "
        f"params[{name!r}] = {value!r:.40}"
    )


def _meant(name: str) -> str:
    """Python syntax for a name: `params.learning-rate` would be a subtraction."""
    if name.isidentifier():
        return f"Did you mean {name!r}?"
    return f'Write trial.params["{name}"].'


class MissingParameter(KeyError):
    """A parameter that the trial does not have; unlike KeyError its text is not in quotes."""

    def __str__(self) -> str:
        return str(self.args[0])
