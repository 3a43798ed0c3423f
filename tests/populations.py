"""What must hold of every population that has come to its end, whatever happened on the way."""

from __future__ import annotations

from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from tuner.store.records.population_rows import MEMBER_KEY, REPLACED_KEY, Origin, Replacement


def origins(trials: Sequence[FrozenTrial]) -> dict[int, Origin]:
    """Of the trials that took others' places, mostly as copies."""
    found = {each.number: Origin.of(each.system_attrs) for each in trials}
    return {number: origin for number, origin in found.items() if origin is not None}


def check_books(
    trials: Sequence[FrozenTrial],
    *,
    population: int,
    has_all_reports: bool = True,
    n_empty: int = 0,
) -> None:
    """All are over; each place that was left is taken once, by a copy that goes on, or anew.

    Args:
        trials: Of the study.
        population: How many members are drawn.
        has_all_reports: Whether none was lost with a dispatcher.
        n_empty: Places where too many failed for good.
    """
    assert all(each.state.is_finished() for each in trials)
    members = [each for each in trials if MEMBER_KEY in each.system_attrs]
    taken = origins(trials)
    assert len(members) == population
    assert len(members) + len(taken) == len(trials)
    replaced = {each.number for each in trials if REPLACED_KEY in each.system_attrs}
    assert sorted(origin.replaces for origin in taken.values()) == sorted(replaced)
    for number, origin in taken.items():
        wanted = Replacement.of(trials[origin.replaces].system_attrs)
        assert wanted is not None
        assert (wanted.parent, dict(wanted.params)) == (origin.parent, trials[number].params)
        reported = sorted(trials[number].intermediate_values)
        assert all(step > origin.step for step in reported)
        if has_all_reports:
            assert reported == list(range(origin.step + 1, origin.step + 1 + len(reported)))
    completed = [each for each in trials if each.state is TrialState.COMPLETE]
    assert len(completed) == population - n_empty
    assert len(trials) - len(completed) - len(replaced) == n_empty
