"""Trials in memory: every answer is that of a search through all of them."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.store.optuna_tables.cached_study import HeldStudy

_STATES = tuple(TrialState)
_SUBSETS = [subset for n in range(len(_STATES) + 1) for subset in combinations(_STATES, n)]


def a_trial(number: int, state: TrialState) -> FrozenTrial:
    values = [0.5] if state == TrialState.COMPLETE else None
    trial = create_trial(state=state, values=values)
    trial.number, trial._trial_id = number, number + 100
    return trial


@given(
    st.lists(st.sampled_from(_STATES), max_size=12),
    st.lists(st.tuples(st.integers(0, 11), st.sampled_from(_STATES)), max_size=20),
)
def test_answers_are_those_of_a_search(
    states: list[TrialState], changes: list[tuple[int, TrialState]]
) -> None:
    study = HeldStudy(a_trial(number, state) for number, state in enumerate(states))
    became_complete = [t.number for t in study.trials if t.state == TrialState.COMPLETE]
    for number, state in changes:
        if number >= len(states) or study.trials[number].state.is_finished():
            continue
        study.put(a_trial(number, state))
        if state == TrialState.COMPLETE:
            became_complete.append(number)
    for subset in _SUBSETS:
        expected = [trial for trial in study.trials if trial.state in subset]
        assert study.of_states(subset) == expected
    assert [trial.number for trial in study.completed] == became_complete
    assert all(trial is study.trials[trial.number] for trial in study.completed)
    unfinished = [trial for trial in study.trials if not trial.state.is_finished()]
    assert sorted(study.unfinished) == [trial._trial_id for trial in unfinished]
    assert {state: n for state, n in study.counts.items() if n} == {
        state: len(found) for state in _STATES if (found := study.of_states((state,)))
    }


def test_completed_one_that_is_read_again_keeps_its_place() -> None:
    study = HeldStudy([a_trial(0, TrialState.COMPLETE), a_trial(1, TrialState.COMPLETE)])
    again = a_trial(0, TrialState.COMPLETE)
    again.values = [0.25]
    study.put(again)
    assert study.completed[0] is study.trials[0]
    assert study.completed[0] == again
    assert [trial.number for trial in study.completed] == [0, 1]
    assert study.of_states((TrialState.COMPLETE,)) == study.trials
