"""What is kept of a trial that has ended: less than Optuna's object takes, with the same content.

What many trials have in common is held once: empty dicts, the distributions of a space, and the
names of attributes. Nothing of it may be changed in place; a storage replaces it whole.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from tuner.store.optuna_tables.curves.lazy_curve import compact

#: Spaces that are remembered: a study has one, or a few where it is conditional.
_MOST_SPACES = 64


class Attributes(Mapping[str, Any]):
    """Attributes that do not change any more: equal to the dict with the same items.

    Args:
        attributes: The attributes.
    """

    __slots__ = ("_names", "_values")

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self._names = _shared(tuple(attributes))
        self._values = tuple(attributes.values())

    def __getitem__(self, name: str) -> Any:
        try:
            return self._values[self._names.index(name)]
        except ValueError:
            raise KeyError(name) from None

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __copy__(self) -> Attributes:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        # Whoever asks for a copy may change it, the values too.
        return copy.deepcopy(dict(self), memo)

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)


@lru_cache(maxsize=4096)
def _shared(names: tuple[str, ...]) -> tuple[str, ...]:
    return names


class EndedTrials:
    """Makes trials of one study small once they have ended."""

    def __init__(self) -> None:
        self._empty: dict[str, Any] = {}
        self._spaces: dict[tuple[str, ...], dict[str, BaseDistribution]] = {}

    def shrink(self, trial: FrozenTrial) -> FrozenTrial:
        """A trial with the same content, the parts that it shares with others held once."""
        made = FrozenTrial.__new__(FrozenTrial)
        # One by one: an object that gets its `__dict__` at once has one of its own, with all keys.
        for name, value in vars(trial).items():
            setattr(made, name, value)
        made.intermediate_values = compact(trial.intermediate_values)
        made.user_attrs = self._attributes(trial.user_attrs)
        made.system_attrs = self._attributes(trial.system_attrs)
        if not trial.params:
            made.params = self._empty
        made.distributions = self._space(trial.distributions)
        return made

    def _attributes(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        if not attributes:
            return self._empty
        # Optuna annotates them as a dict, but reads them as any mapping.
        return cast(dict[str, Any], Attributes(attributes))

    def _space(self, distributions: dict[str, BaseDistribution]) -> dict[str, BaseDistribution]:
        names = tuple(distributions)
        known = self._spaces.get(names)
        if known is not None and known == distributions:
            return known
        if len(self._spaces) < _MOST_SPACES or names in self._spaces:
            self._spaces[names] = distributions
        return distributions
