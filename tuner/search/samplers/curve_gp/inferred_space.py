"""The space of a study, inferred from its trials: the program may suggest its parameters itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, get_args

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from tuner.search.trial_attributes.memo import TrialMemo
from tuner.search_spaces import Parameter, Scalar, SearchSpace
from tuner.search_spaces.space import Distribution

#: A whole number with more values is not taken for a condition: trials differ in it anyhow.
_MOST_VALUES = 32


def inferred_space(trials: Sequence[FrozenTrial]) -> SearchSpace:
    """The parameters of a study's trials, with conditions that explain which trials have them.

    A parameter that some trials lack is taken to depend on one other, a choice or a whole number:
    no value of this one occurs both in trials that have it and in trials that lack it. A parameter
    that no other explains, or whose range has changed, is left out: nothing is assumed of it.

    Args:
        trials: Those that completed or were pruned count; others only if there are none. A trial
            that failed may have failed before it suggested all.
    """
    ended = [each for each in trials if each.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    counted = [each for each in ended or trials if each.distributions]
    unexplained = dict(_distributions(counted))
    known = {
        name: Parameter(name=name, distribution=each)
        for name, each in unexplained.items()
        if all(name in trial.params for trial in counted)
    }
    has_found = True
    while has_found:
        has_found = False
        for name in [each for each in unexplained if each not in known]:
            if (when := _condition_of(name, known, counted)) is not None:
                known[name] = Parameter(name=name, distribution=unexplained[name], when=when)
                has_found = True
    return SearchSpace(parameters=tuple(known.values()))


def _distributions(trials: Sequence[FrozenTrial]) -> Iterator[tuple[str, Distribution]]:
    """The parameters with the same range in all trials that have them, and more than one value."""
    first: dict[str, Distribution | None] = {}
    for trial in trials:
        for name, each in trial.distributions.items():
            if name not in first:
                first[name] = each if _is_searched(each) else None
            elif first[name] is not each and first[name] != each:
                first[name] = None
    return ((name, each) for name, each in sorted(first.items()) if each is not None)


def _is_searched(distribution: BaseDistribution) -> TypeGuard[Distribution]:
    return isinstance(distribution, get_args(Distribution)) and not distribution.single()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """Values of a parameter, as positions among all that it can have; none occurs in both."""

    #: In trials that have another parameter.
    present: frozenset[int]
    #: In trials that lack it.
    absent: frozenset[int]


def _condition_of(
    name: str, known: Mapping[str, Parameter], trials: Sequence[FrozenTrial]
) -> dict[str, tuple[Scalar, ...]] | None:
    """The simplest condition that explains which trials have a parameter; None without any."""
    found = []
    for parent in known.values():
        possible = _possible_values(parent.distribution)
        values = _values(name, parent, trials) if possible else None
        if values is not None:
            n_distinct = len(values.present) + len(values.absent)
            found.append((n_distinct, parent.name, _between(parent.distribution, values), possible))
    if not found:
        return None
    _, parent_name, positions, possible = min(found, key=lambda each: each[:2])
    return {parent_name: tuple(possible[each] for each in sorted(positions))}


def _values(name: str, parent: Parameter, trials: Sequence[FrozenTrial]) -> _Values | None:
    """The values of the parent; None if they do not tell which trials have a parameter.

    They do not if a trial has it without the parent, either, or if all that have the parent have
    it: what both depend on tells more.
    """
    present: set[int] = set()
    absent: set[int] = set()
    for trial in trials:
        has = name in trial.params
        if parent.name not in trial.params:
            if has:
                return None
            continue
        place = _place(parent.distribution, trial.params[parent.name])
        same, other = (present, absent) if has else (absent, present)
        same.add(place)
        if place in other:
            return None
    return _Values(present=frozenset(present), absent=frozenset(absent)) if absent else None


def _possible_values(
    distribution: Distribution,
) -> Sequence[Scalar]:
    """All values of a choice or a whole number, in order; none of what has too many."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices
    if not isinstance(distribution, IntDistribution):
        return ()
    possible = range(distribution.low, distribution.high + 1, distribution.step)
    return possible if len(possible) <= _MOST_VALUES else ()


def _place(distribution: Distribution, value: Any) -> int:
    place = int(distribution.to_internal_repr(value))
    if isinstance(distribution, IntDistribution):
        return (place - distribution.low) // distribution.step
    return place


def _between(distribution: Distribution, values: _Values) -> frozenset[int]:
    """Of a whole number, also what lies between two values of trials that have the parameter."""
    if not isinstance(distribution, IntDistribution):
        return values.present
    between = frozenset(range(min(values.present), max(values.present) + 1))
    return values.present if between & values.absent else between


class CommonSpace:
    """The parameters that all ended trials have; those of running trials if none has ended.

    A trial that failed may have failed before it suggested all.
    """

    def __init__(self) -> None:
        self._spaces = TrialMemo(self._known_space)
        #: The different spaces of the trials of the last call: mostly one.
        self._different: list[dict[str, BaseDistribution]] = []

    def of(self, trials: Sequence[FrozenTrial]) -> dict[str, BaseDistribution]:
        """By name, in alphabetical order, without parameters that have only one value.

        Args:
            trials: With their parameters.
        """
        states = (TrialState.COMPLETE, TrialState.PRUNED)
        ended = [each for each in trials if each.state in states]
        spaces = {id(each): each for each in self._spaces.of(ended or trials)}
        first, *others = self._different = [*spaces.values()] or [{}]
        return {
            name: each
            for name, each in sorted(first.items())
            if not each.single() and all(other.get(name) == each for other in others)
        }

    def _known_space(self, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """A trial's space; the same object for equal spaces."""
        space = trial.distributions
        for known in self._different:
            if known == space:
                return known
        self._different.append(space)
        return space
