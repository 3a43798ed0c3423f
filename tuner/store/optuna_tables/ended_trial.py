"""Compact form of an ended trial: less memory than Optuna's object, with the same content.

Optuna's trial is an object with five dicts and two times, more than a kilobyte. Here the numbers of
an ended trial are in one byte string, and common parts are shared by all trials: the space and the
names of attributes. Dicts and times are created on access. They must not be changed in place; a
storage replaces the trial.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from struct import Struct
from typing import Any, TypeAlias, cast

from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import FrozenTrial

from tuner.store.optuna_compat import trial_id_of
from tuner.store.optuna_tables.curves.lazy_curve import compact

#: Maximum number of cached spaces: a study has one, or some if it is conditional.
_MOST_SPACES = 1024
#: Parameters that stay dicts for a while: samplers look at the same trials again and again.
_N_RECENT = 4096

#: Id, beginning and end.
_HEAD = Struct("<qqq")
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_NO_TIME = -(2**63)


Packed: TypeAlias = tuple[Any, ...]
"""Names, which many trials share, followed by their values; empty if there are none."""

#: For trials without attributes.
_EMPTY: dict[str, Any] = {}


class EndedTrial(FrozenTrial):
    """A trial that has ended, equal to Optuna's with the same content.

    Copies of it, pickled ones too, are Optuna's own.
    """

    __slots__ = (
        "_number",
        "_numbers",
        "_packed_system",
        "_packed_user",
        "_space",
        "intermediate_values",
        "state",
    )

    _numbers: bytes
    _packed_system: Packed
    _packed_user: Packed
    _space: Space

    def __init__(self, trial: FrozenTrial, space: Space, numbers: bytes) -> None:
        self._number = trial.number
        self.state = trial.state
        self.intermediate_values = compact(trial.intermediate_values)
        self._packed_user = pack(trial.user_attrs)
        self._packed_system = pack(trial.system_attrs)
        self._space = space
        self._numbers = numbers

    # What Optuna's class reads of itself.

    @property
    def _trial_id(self) -> int:  # type: ignore[override]
        return cast(int, _HEAD.unpack_from(self._numbers)[0])

    @property
    def _datetime_start(self) -> datetime | None:  # type: ignore[override]
        return _as_time(_HEAD.unpack_from(self._numbers)[1])

    @property
    def datetime_complete(self) -> datetime | None:  # type: ignore[override]
        return _as_time(_HEAD.unpack_from(self._numbers)[2])

    @property
    def _values(self) -> list[float] | None:  # type: ignore[override]
        return self._space.values_of(self._numbers)

    @property
    def _params(self) -> dict[str, Any]:  # type: ignore[override]
        return self._space.params_of(self._numbers)

    @property
    def _distributions(self) -> dict[str, BaseDistribution]:  # type: ignore[override]
        return self._space.distributions

    @property
    def _user_attrs(self) -> dict[str, Any]:  # type: ignore[override]
        return _unpacked(self._packed_user)

    @property
    def _system_attrs(self) -> dict[str, Any]:  # type: ignore[override]
        return _unpacked(self._packed_system)

    def _plain(self) -> FrozenTrial:
        made = FrozenTrial.__new__(FrozenTrial)
        for name in _NAMES:
            setattr(made, name, getattr(self, name))
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FrozenTrial):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _NAMES)

    __hash__ = FrozenTrial.__hash__

    def __repr__(self) -> str:
        return repr(self._plain())

    def __copy__(self) -> FrozenTrial:
        return self._plain()

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenTrial:
        return copy.deepcopy(self._plain(), memo)

    def __reduce__(self) -> tuple[Any, ...]:
        # A process that unpickles a trial may not have this class.
        return object.__new__, (FrozenTrial,), vars(self._plain())

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return self.__reduce__()


#: As Optuna's object has them.
_NAMES = (
    "_number",
    "state",
    "_values",
    "_datetime_start",
    "datetime_complete",
    "_params",
    "_user_attrs",
    "_system_attrs",
    "intermediate_values",
    "_distributions",
    "_trial_id",
)


class Space:
    """Parameters and distributions that many trials have, and how their numbers are packed.

    Args:
        distributions: By parameter, in the order in which they were suggested.
    """

    def __init__(self, distributions: dict[str, BaseDistribution]) -> None:
        self.distributions = distributions
        self._params = Struct(f"<{len(distributions)}d")
        #: The parameters of a trial by its packed numbers.
        self.params_of = lru_cache(_N_RECENT)(self._params_of)

    def pack(self, trial: FrozenTrial) -> bytes | None:
        """All numbers of a trial of this space; None if they could not be restored exactly."""
        times = _as_number(trial.datetime_start), _as_number(trial.datetime_complete)
        params = [self._internal(name, value) for name, value in trial.params.items()]
        values = trial.values or []
        if None in times or None in params or trial.params.keys() != self.distributions.keys():
            return None
        if trial.values == [] or not all(type(value) is float for value in values):
            return None
        head = _HEAD.pack(trial_id_of(trial), *times)
        return head + Struct(f"<{len(values)}d").pack(*values) + self._params.pack(*params)

    def values_of(self, numbers: bytes) -> list[float] | None:
        """The values of a trial by its packed numbers."""
        n_bytes = len(numbers) - _HEAD.size - self._params.size
        return list(_values(n_bytes // 8).unpack_from(numbers, _HEAD.size)) if n_bytes else None

    def _params_of(self, numbers: bytes) -> dict[str, Any]:
        internal = self._params.unpack_from(numbers, len(numbers) - self._params.size)
        return {
            name: distribution.to_external_repr(number)
            for (name, distribution), number in zip(
                self.distributions.items(), internal, strict=True
            )
        }

    def _internal(self, name: str, value: Any) -> float | None:
        distribution = self.distributions.get(name)
        if distribution is None:
            return None
        if type(value) is float and isinstance(distribution, FloatDistribution):
            return value
        try:
            number = float(distribution.to_internal_repr(value))
            again = distribution.to_external_repr(number)
        except (ValueError, TypeError, OverflowError):
            return None  # It was given from outside, and lies in no such range.
        return number if type(again) is type(value) and (again is value or again == value) else None


class EndedTrials:
    """Makes trials of one study small once they have ended."""

    def __init__(self) -> None:
        self._spaces: dict[tuple[str, ...], Space] = {}

    def shrink(self, trial: FrozenTrial) -> FrozenTrial:
        """A trial with the same content, the parts that it shares with others held once."""
        if isinstance(trial, EndedTrial):
            return trial
        space = self._space(trial.distributions, tuple(trial.params))
        numbers = space.pack(trial)
        if numbers is not None:
            return EndedTrial(trial, space, numbers)
        kept = copy.copy(trial)
        kept.intermediate_values = compact(trial.intermediate_values)
        return kept

    def _space(self, distributions: dict[str, BaseDistribution], names: tuple[str, ...]) -> Space:
        known = self._spaces.get(names)
        if known is not None and known.distributions == distributions:
            return known
        # In the order of the parameters.
        ordered = {name: distributions[name] for name in names if name in distributions}
        made = Space(ordered if len(ordered) == len(distributions) else distributions)
        if len(self._spaces) < _MOST_SPACES or names in self._spaces:
            self._spaces[names] = made
        return made


class Attributes(Mapping[str, Any]):
    """Attributes that do not change any more: equal to the dict with the same items.

    Args:
        packed: The attributes, as `pack` makes them.
    """

    __slots__ = ("_packed",)

    def __init__(self, packed: Packed) -> None:
        self._packed = packed

    def __getitem__(self, name: str) -> Any:
        try:
            return self._packed[self._packed[0].index(name) + 1]
        except ValueError:
            raise KeyError(name) from None

    def __contains__(self, name: object) -> bool:
        return name in self._packed[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed[0])

    def __len__(self) -> int:
        return len(self._packed) - 1

    def __repr__(self) -> str:
        return repr(dict(self))

    def __copy__(self) -> Attributes:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        # A caller may change its copy, including the values.
        return copy.deepcopy(dict(self), memo)

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)


def pack(attributes: Mapping[str, Any]) -> Packed:
    """The attributes as one object."""
    return (_shared(tuple(attributes)), *attributes.values()) if attributes else ()


@lru_cache(maxsize=4096)
def _shared(names: tuple[str, ...]) -> tuple[str, ...]:
    return names


@lru_cache
def _values(n_values: int) -> Struct:
    return Struct(f"<{n_values}d")


def _as_number(at: datetime | None) -> int | None:
    """Microseconds; None for a time that is more than date and time of day."""
    if at is None:
        return _NO_TIME
    if at.tzinfo is not None or at.fold or type(at) is not datetime:
        return None
    return (at - _EPOCH) // _MICROSECOND


def _as_time(number: int) -> datetime | None:
    return None if number == _NO_TIME else _EPOCH + timedelta(microseconds=number)


def _unpacked(packed: Packed) -> dict[str, Any]:
    # Optuna annotates attributes as a dict, but reads them as any mapping.
    return cast(dict[str, Any], Attributes(packed) if packed else _EMPTY)
