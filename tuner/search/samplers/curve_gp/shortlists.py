"""Short lists of a study's finished trials, kept up to date as trials finish.

Taking one more trial costs the same after fifty trials and after fifty thousand.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import chain
from typing import Protocol, TypeAlias

import optuna
from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.search.rungs.table import RUNG_KEY
from tuner.store.optuna_compat import best_completed, infeasibility, pruned_score

Key: TypeAlias = tuple[float, ...] | bytes


class Shortlist(Protocol):
    """Some of the finished trials."""

    def add(self, trial: FrozenTrial) -> None:
        """Adds a finished trial; each once, in any order."""

    def __iter__(self) -> Iterator[FrozenTrial]:
        """Its trials, the best first."""


class Least:
    """The trials with the smallest keys; of equal ones the earlier.

    Args:
        size: Number of trials.
        key: Returns a trial's key.
        is_behind: Cheap test whether a trial's key is larger than this.
    """

    def __init__(
        self,
        size: int,
        key: Callable[[FrozenTrial], Key],
        *,
        is_behind: Callable[[FrozenTrial, Key], bool] = lambda trial, key: False,
    ) -> None:
        self._size = size
        self._key = key
        self._is_behind = is_behind
        self._entries: list[tuple[Key, int, FrozenTrial]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[FrozenTrial]:
        return (trial for _, _, trial in self._entries)

    def add(self, trial: FrozenTrial) -> None:
        is_full = 0 < self._size == len(self._entries)
        if is_full and self._is_behind(trial, self._entries[-1][0]):
            return
        insort(self._entries, (self._key(trial), trial.number, trial))
        del self._entries[self._size :]


class Best:
    """The best completed trials of one objective, without those that broke a constraint."""

    def __init__(self, size: int, study: optuna.Study) -> None:
        self._trials = Least(size, rank(study))

    def __iter__(self) -> Iterator[FrozenTrial]:
        return iter(self._trials)

    def add(self, trial: FrozenTrial) -> None:
        if trial.state is TrialState.COMPLETE and infeasibility(trial) <= 0:
            self._trials.add(trial)


class Fronts:
    """The best trials of several objectives.

    These are the first fronts and, from the last of them, the trials that add the most hypervolume.
    Infeasible trials come last.
    """

    def __init__(self, size: int, study: optuna.Study) -> None:
        self._size = size
        self._study = study
        self._feasible: list[FrozenTrial] = []
        self._others = Least(size, rank(study), is_behind=is_pruned_behind)

    def __iter__(self) -> Iterator[FrozenTrial]:
        self._cut()
        yield from self._feasible
        n_missing = self._size - len(self._feasible)
        yield from (trial for _, trial in zip(range(n_missing), self._others, strict=False))

    def add(self, trial: FrozenTrial) -> None:
        if trial.state is not TrialState.COMPLETE or infeasibility(trial) > 0:
            self._others.add(trial)
            return
        self._feasible.append(trial)
        # Ranking takes about as long for one new trial as for as many as are kept.
        if len(self._feasible) >= 2 * self._size:
            self._cut()

    def _cut(self) -> None:
        self._feasible = best_completed(self._feasible, self._study, self._size)


class Witnesses:
    """The trials without which a search space that Optuna infers from all would be another.

    Optuna infers the parameters that all trials have (the intersection), or splits them into
    groups that occur together. A trial is kept if it has made the former smaller or the latter
    finer, so that there are a few times as many as parameters at most.
    """

    def __init__(self) -> None:
        self._trials: list[FrozenTrial] = []
        self._common: dict[str, BaseDistribution] | None = None
        self._groups: list[frozenset[str]] = []
        #: Names of trials: a second one with the same makes no group finer.
        self._split_by: set[frozenset[str]] = set()

    def __iter__(self) -> Iterator[FrozenTrial]:
        return iter(self._trials)

    def add(self, trial: FrozenTrial) -> None:
        has = trial.distributions
        before = has if self._common is None else self._common
        # Stored trials share their distributions, and Optuna takes microseconds to compare two.
        common = {
            name: each
            for name, each in before.items()
            if (its := has.get(name)) is each or its == each
        }
        names = frozenset(has)
        groups = self._groups if names in self._split_by else _split(self._groups, names)
        self._split_by.add(names)
        if self._common is None or len(common) < len(self._common) or groups != self._groups:
            self._trials.append(trial)
        self._common, self._groups = common, groups


def _split(groups: list[frozenset[str]], names: frozenset[str]) -> list[frozenset[str]]:
    pieces = [piece for group in groups for piece in (group & names, group - names)]
    return [piece for piece in (*pieces, names.difference(*groups)) if piece]


def rank(study: optuna.Study) -> Callable[[FrozenTrial], Key]:
    """Rank of a trial, the smaller the better, in the order of Optuna's TPE.

    Completed trials by value, then pruned ones by their last step and value, then infeasible ones.
    """
    is_maximized = study.directions[0] is StudyDirection.MAXIMIZE

    def key(trial: FrozenTrial) -> Key:
        violation = infeasibility(trial)
        if violation > 0:
            return 2, violation
        if trial.state is TrialState.PRUNED:
            return 1, *pruned_score(trial, study)
        value = trial.value if trial.value is not None else math.inf
        return 0, -value if is_maximized else value

    return key


def is_pruned_behind(trial: FrozenTrial, key: Key) -> bool:
    """Whether a pruned trial ranks behind a completed one by `rank`, whatever its curve."""
    return trial.state is TrialState.PRUNED and key[0] == 0


class Generations:
    """The trials of the last generations of an evolution.

    Args:
        attr: The system attribute with a trial's generation.
        n_generations: Number of generations kept.
    """

    def __init__(self, attr: str, n_generations: int) -> None:
        self._attr = attr
        self._n_generations = n_generations
        self._trials: dict[int, list[FrozenTrial]] = {}

    def __iter__(self) -> Iterator[FrozenTrial]:
        return chain.from_iterable(self._trials.values())

    def add(self, trial: FrozenTrial) -> None:
        generation = trial.system_attrs.get(self._attr)
        if generation is None:
            return
        self._trials.setdefault(generation, []).append(trial)
        if len(self._trials) > self._n_generations:
            del self._trials[min(self._trials)]


class Paused:
    """A selection of paused trials; unlike finished ones, these may continue and change.

    Args:
        size: Number of trials: half are those that came furthest, the others a uniform sample.
        seed: Seed of the sample.
    """

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._lot = lot(seed)
        self._keys: dict[int, tuple[Key, Key]] = {}
        #: With their keys, the smallest first.
        self._furthest: list[tuple[Key, int, FrozenTrial]] = []
        self._drawn: list[tuple[Key, int, FrozenTrial]] = []

    def __iter__(self) -> Iterator[FrozenTrial]:
        chosen = {number: trial for _, number, trial in self._furthest[: self._size // 2]}
        for _, number, trial in self._drawn:
            if len(chosen) >= self._size:
                break
            chosen[number] = trial
        return iter(chosen.values())

    def put(self, trial: FrozenTrial) -> None:
        """Adds a paused trial, or updates it."""
        self.drop(trial.number)
        furthest, drawn = self._keys[trial.number] = furthest_first(trial), self._lot(trial)
        insort(self._furthest, (furthest, trial.number, trial))
        insort(self._drawn, (drawn, trial.number, trial))

    def drop(self, number: int) -> None:
        """Removes a trial that is no longer paused, if present."""
        for entries, key in zip(
            (self._furthest, self._drawn), self._keys.pop(number, ()), strict=False
        ):
            del entries[bisect_left(entries, (key, number))]


def age(trial: FrozenTrial) -> Key:
    """The newest first."""
    return (-trial.number,)


def furthest_first(trial: FrozenTrial) -> Key:
    """Completed trials first, then by number of rungs; of equal ones the newest first."""
    n_rungs = sum(key.startswith(RUNG_KEY) for key in trial.system_attrs)
    return trial.state is not TrialState.COMPLETE, -n_rungs, -trial.number


def lot(seed: int) -> Callable[[FrozenTrial], Key]:
    """A random order that is the same in all processes and independent of arrival order."""

    def key(trial: FrozenTrial) -> Key:
        return blake2b(f"{seed}:{trial.number}".encode(), digest_size=8).digest()

    return key


def newest_with(prefix: str) -> Callable[[FrozenTrial], Key]:
    """The newest of those first that have a system attribute with this prefix."""

    def key(trial: FrozenTrial) -> Key:
        has_it = any(attr.startswith(prefix) for attr in trial.system_attrs)
        return not has_it, -trial.number

    return key
