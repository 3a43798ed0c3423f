"""What each sampler is shown of a study's finished trials.

Optuna's samplers read all of them for each suggestion: TPE takes more than a second at 50,000
trials, and the time of a Gaussian process grows with their cube. Here a sampler is shown, in
addition to all unfinished trials (`curve_gp`: all but those paused at a rung):

- `tpe`: 500. The trials from which it builds its l(x), exactly: the best 25 in its own order, or
  with several objectives the best tenth of 500. All others make up its g(x), where one trial is one
  kernel of hundreds: a uniform sample represents them, with the same density in expectation.
- `gp`: 300 of the completed ones: the best 100, near which the optimum is searched, the newest 100,
  and a uniform sample of the others.
- `curve_gp`: 300 of the ended ones: the best five, near which it searches, the 150 that came
  furthest by their rungs, the newest first, and a uniform sample of the others; and as many of the
  paused ones.
- `cma_es`, `nsgaii`, `nsgaiii`: the last generations. They use no others.
- Any other: all.

Up to 500 or 300 finished trials nothing is left out, and every suggestion equals Optuna's own; so
do all suggestions of the last three samplers. A larger `n_startup_trials` raises the limit. The few
trials that determine the inferred search space are always shown.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import optuna
from optuna.samplers import (
    BaseGASampler,
    BaseSampler,
    CmaEsSampler,
    GPSampler,
    NSGAIIISampler,
    NSGAIISampler,
    TPESampler,
)
from optuna.trial import FrozenTrial, TrialState

from tuner.search.samplers.curve_gp.points import N_LEADERS, is_informative
from tuner.search.samplers.curve_gp.sampler import CurveGPSampler
from tuner.search.samplers.curve_gp.shortlists import (
    Best,
    Fronts,
    Generations,
    Least,
    Paused,
    Shortlist,
    Witnesses,
    age,
    furthest_first,
    is_pruned_behind,
    lot,
    newest_with,
    rank,
)
from tuner.store.optuna_compat import (
    cma_es_state,
    default_gamma,
    default_gamma_multiobjective,
    generation_key_of,
    n_startup_trials_of,
)

TPE_LIMIT = 500
GP_LIMIT = 300
GP_BEST = 100
GP_NEWEST = 100
#: Dispatchers that have not seen each other's trials yet may be a generation apart.
N_GENERATIONS = 4


class Shown:
    """The finished trials that a sampler is shown.

    Args:
        limit: Maximum number, in addition to the search space's witnesses and all of `first`.
        states: The states that the sampler reads.
        first: Lists of trials that it must see.
        rest: Fills up to `limit`.
        by_id: Whether it looks trials up by id among all states; then all are shown.
        paused: Selects paused trials; None shows all.
    """

    def __init__(
        self,
        *,
        limit: int,
        states: Container[TrialState],
        first: Sequence[Shortlist],
        rest: Shortlist,
        by_id: bool = False,
        paused: Paused | None = None,
    ) -> None:
        self.by_id = by_id
        self._paused = paused
        self._unfinished: dict[int, FrozenTrial] = {}
        self._limit = limit
        self._first = first
        self._rest = rest
        # For each state, because some infer a space from completed trials alone.
        self._witnesses = {
            state: Witnesses()
            for state in (TrialState.COMPLETE, TrialState.PRUNED)
            if state in states
        }
        self._chosen: list[FrozenTrial] | None = None

    def add(self, trial: FrozenTrial) -> None:
        """Adds a finished trial; each once."""
        self._forget(trial.number)
        if trial.state not in self._witnesses:
            return
        for shortlist in (*self._first, self._rest, self._witnesses[trial.state]):
            shortlist.add(trial)
        self._chosen = None

    def see(self, trial: FrozenTrial) -> None:
        """Adds an unfinished trial, or updates it."""
        has_curve = trial.state is TrialState.WAITING and is_informative(trial)
        self._forget(trial.number)
        if has_curve and self._paused is not None:
            self._paused.put(trial)
        else:
            self._unfinished[trial.number] = trial

    @property
    def unfinished(self) -> Iterator[FrozenTrial]:
        """Unfinished trials to show."""
        return chain(self._unfinished.values(), self._paused or ())

    def _forget(self, number: int) -> None:
        self._unfinished.pop(number, None)
        if self._paused is not None:
            self._paused.drop(number)

    def __iter__(self) -> Iterator[FrozenTrial]:
        if self._chosen is None:
            self._chosen = self._choose()
        return iter(self._chosen)

    def _choose(self) -> list[FrozenTrial]:
        chosen = {trial.number: trial for shortlist in self._first for trial in shortlist}
        for trial in self._rest:
            if len(chosen) >= self._limit:
                break
            chosen[trial.number] = trial
        for witnesses in self._witnesses.values():
            chosen.update((trial.number, trial) for trial in witnesses)
        return list(chosen.values())


def history_for_tpe(
    sampler: TPESampler, seed: int, study: optuna.Study, *, limit: int = TPE_LIMIT
) -> Shown:
    limit = max(limit, n_startup_trials_of(sampler))
    best: Shortlist = Least(default_gamma(limit), rank(study), is_behind=is_pruned_behind)
    if len(study.directions) > 1:
        best = Fronts(default_gamma_multiobjective(limit), study)
    states = (TrialState.COMPLETE, TrialState.PRUNED)
    return Shown(limit=limit, states=states, first=[best], rest=Least(limit, lot(seed)))


def history_for_gp(
    sampler: GPSampler, seed: int, study: optuna.Study, *, limit: int = GP_LIMIT
) -> Shown:
    limit = max(limit, n_startup_trials_of(sampler))
    best: Shortlist = Least(GP_BEST, rank(study))
    if len(study.directions) > 1:
        best = Fronts(GP_BEST, study)
    first = [best, Least(GP_NEWEST, age)]
    states = (TrialState.COMPLETE,)
    return Shown(limit=limit, states=states, first=first, rest=Least(limit, lot(seed)))


def history_for_curve_gp(
    sampler: CurveGPSampler, seed: int, study: optuna.Study, *, limit: int = GP_LIMIT
) -> Shown:
    limit = max(limit, sampler.n_startup_trials)
    states = (TrialState.COMPLETE, TrialState.PRUNED)
    best = [Best(N_LEADERS, study)] if len(study.directions) == 1 else []
    return Shown(
        limit=limit,
        states=states,
        first=[*best, Least(limit // 2, furthest_first), Least(limit // 6, age)],
        rest=Least(limit, lot(seed)),
        paused=Paused(limit, seed),
    )


def history_for_cma_es(sampler: CmaEsSampler, seed: int, study: optuna.Study) -> Shown:
    state = cma_es_state(sampler)
    first: list[Shortlist] = [
        Generations(state.generation_key, N_GENERATIONS),
        Least(1, newest_with(state.optimizer_key)),
    ]
    states = {TrialState.COMPLETE}
    if state.learns_from_pruned:
        states.add(TrialState.PRUNED)
    # It counts the trials until it starts.
    limit = n_startup_trials_of(sampler)
    return Shown(limit=limit, states=states, first=first, rest=Least(limit, age))


def history_for_genetic(sampler: BaseGASampler, seed: int, study: optuna.Study) -> Shown:
    generations = Generations(generation_key_of(sampler), N_GENERATIONS)
    states = (TrialState.COMPLETE,)
    # A parent can be of any generation.
    return Shown(limit=0, states=states, first=[generations], rest=Least(0, age), by_id=True)


# Any, because each takes the sampler that it is for.
SHOWN: Mapping[type[BaseSampler], Callable[[Any, int, optuna.Study], Shown]] = {
    TPESampler: history_for_tpe,
    GPSampler: history_for_gp,
    CurveGPSampler: history_for_curve_gp,
    CmaEsSampler: history_for_cma_es,
    NSGAIISampler: history_for_genetic,
    NSGAIIISampler: history_for_genetic,
}
"""Builds the view for a sampler, from a seed for the uniform samples and the study."""
