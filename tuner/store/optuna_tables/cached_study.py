"""The trials of one study in memory, indexed so that the cost of a query is that of its result."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable
from datetime import datetime
from operator import attrgetter

from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from tuner.store.optuna_compat import trial_id_of
from tuner.store.optuna_tables.ended_trial import EndedTrials

_NUMBER = attrgetter("number")
_ENDED = tuple(state for state in TrialState if state.is_finished())


class HeldStudy:
    """Trials by number, by state, and those that have not ended.

    A trial that is put in is not changed any more; a changed one takes its place.

    Args:
        trials: All that are stored, by number.
    """

    def __init__(self, trials: Iterable[FrozenTrial]) -> None:
        #: By number. To be read only, as all that is here.
        self.trials: list[FrozenTrial] = []
        self.counts: Counter[TrialState] = Counter()
        #: The last seen distribution of each parameter.
        self.distributions: dict[str, BaseDistribution] = {}
        #: In the order in which they became known as complete.
        self.completed: list[FrozenTrial] = []
        #: By trial id.
        self.unfinished: dict[int, FrozenTrial] = {}
        self._ended_trials = EndedTrials()
        #: Index of each completed trial there, by number; -1 for others.
        self._completed_places = array("q")
        self._ended: dict[TrialState, list[FrozenTrial]] = {state: [] for state in _ENDED}
        for trial in trials:
            self.put(trial)

    @property
    def newest(self) -> FrozenTrial | None:
        return self.trials[-1] if self.trials else None

    def put(self, trial: FrozenTrial) -> FrozenTrial:
        """Takes in a trial with the next number, or one as it is by now; gives what is held."""
        if trial.state.is_finished():
            trial = self._ended_trials.shrink(trial)
        if trial.number == len(self.trials):
            self.trials.append(trial)
        elif trial.state is TrialState.RUNNING is self.trials[trial.number].state:
            # One report more, most often.
            self.trials[trial.number] = self.unfinished[trial_id_of(trial)] = trial
            self.distributions.update(trial.distributions)
            return trial
        else:
            self._forget(self.trials[trial.number])
            self.trials[trial.number] = trial
        self.counts[trial.state] += 1
        self.distributions.update(trial.distributions)
        if trial.state.is_finished():
            _insert(self._ended[trial.state], trial)
            if trial.state == TrialState.COMPLETE:
                self._add_completed(trial)
        else:
            self.unfinished[trial_id_of(trial)] = trial
        return trial

    def of_states(self, states: Container[TrialState]) -> list[FrozenTrial]:
        """Trials in one of these states, by number."""
        wanted = [state for state in TrialState if state in states]
        if len(wanted) == 1 and wanted[0] in self._ended:
            return list(self._ended[wanted[0]])
        if 2 * sum(self.counts[state] for state in wanted) > len(self.trials):
            return [trial for trial in self.trials if trial.state in wanted]
        found = [trial for state in wanted for trial in self._ended.get(state, ())]
        found += [trial for trial in self.unfinished.values() if trial.state in wanted]
        return sorted(found, key=_NUMBER)

    def _add_completed(self, trial: FrozenTrial) -> None:
        # A completed trial from Optuna may be read before it is completely known.
        places = self._completed_places
        if (missing := trial.number + 1 - len(places)) > 0:
            places.extend([-1] * missing)
        place = places[trial.number]
        if place < 0:
            places[trial.number] = len(self.completed)
            self.completed.append(trial)
        else:
            self.completed[place] = trial

    def _forget(self, trial: FrozenTrial) -> None:
        self.counts[trial.state] -= 1
        self.unfinished.pop(trial_id_of(trial), None)
        if trial.state.is_finished():
            ended = self._ended[trial.state]
            del ended[bisect_left(ended, trial.number, key=_NUMBER)]


def _insert(trials: list[FrozenTrial], trial: FrozenTrial) -> None:
    """By number; usually at the end, or close to it."""
    if not trials or trials[-1].number < trial.number:
        trials.append(trial)
    else:
        trials.insert(bisect_left(trials, trial.number, key=_NUMBER), trial)


def may_have_moved(
    before: FrozenTrial | None,
    state: TrialState,
    started_at: datetime | None,
    *,
    is_due: bool = True,
) -> bool:
    """Whether a trial may have changed: a waiting trial changes only by its start.

    Args:
        before: As it was read last; None for a new trial.
        state: As it is now.
        started_at: As it is now.
        is_due: Whether a running trial is read in any case.
    """
    if before is None or before.state != state or (is_due and state == TrialState.RUNNING):
        return True
    # Between two looks it may have run, and wait again.
    return before.datetime_start != started_at
