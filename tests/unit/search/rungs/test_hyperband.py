"""Hyperband: which trial is in which bracket, and what becomes of it there."""

from __future__ import annotations

from collections import Counter

import optuna
import pytest

from tuner.search.pruners.hyperband import FIRST_RUNG_KEY, AsyncHyperbandPruner
from tuner.search.rungs.brackets import NEVER


def test_brackets_have_the_shares_of_hyperband() -> None:
    pruner = AsyncHyperbandPruner(max_resource=81)
    drawn = Counter(pruner.first_rung(number, None) for number in range(20_000))
    # Of Li et al. (2018), table 1: 81, 34, 15, 8 and 5 begin in the brackets of R = 81, where
    # they round up.
    shares = {1: 81, 3: 5 / 4 * 27, 9: 5 / 3 * 9, 27: 5 / 2 * 3, NEVER: 5}
    for first, share in shares.items():
        assert drawn[first] / 20_000 == pytest.approx(share / sum(shares.values()), abs=0.01)


def test_the_same_seed_and_number_have_the_same_bracket() -> None:
    def drawn(seed: int) -> list[int]:
        pruner = AsyncHyperbandPruner(max_resource=27, seed=seed)
        return [pruner.first_rung(number, None) for number in range(50)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


@pytest.mark.parametrize(
    ("arguments", "length", "expected"),
    [
        ({"max_resource": 9}, None, {1, 3, NEVER}),
        ({"max_resource": 10}, None, {1, 3, 9, NEVER}),
        ({"max_resource": 1}, None, {NEVER}),
        ({"min_resource": 2, "max_resource": 50, "reduction_factor": 4}, None, {2, 8, 32, NEVER}),
        # A program may end before the step that the study file names.
        ({"max_resource": 81}, 9, {1, 3, NEVER}),
        ({}, 27, {1, 3, 9, NEVER}),
    ],
)
def test_brackets_begin_at_rungs_below_the_length(
    arguments: dict[str, int], length: int | None, expected: set[int]
) -> None:
    pruner = AsyncHyperbandPruner(**arguments)  # type: ignore[arg-type]
    drawn = {pruner.first_rung(number, length) for number in range(500)}
    assert drawn == expected
    assert all(map(pruner.is_first_rung, drawn))
    assert not pruner.is_first_rung(5)


def test_before_a_length_is_known_one_trial_finds_it_out() -> None:
    pruner = AsyncHyperbandPruner()
    assert [pruner.first_rung(number, None) for number in range(4)] == [NEVER, 1, 1, 1]


def in_bracket(study: optuna.Study, first: int, value: float) -> optuna.Trial:
    trial = study.ask()
    study._storage.set_trial_system_attr(trial._trial_id, FIRST_RUNG_KEY, first)
    trial.report(value, 3)
    return trial


def test_where_trials_stop_a_bracket_is_for_itself() -> None:
    pruner = AsyncHyperbandPruner(max_resource=9, mode="stop")
    study = optuna.create_study(direction="maximize", pruner=pruner)
    assert not in_bracket(study, 1, 0.9).should_prune()
    assert not in_bracket(study, 3, 0.5).should_prune(), "the first of its bracket"
    assert not in_bracket(study, NEVER, 0.1).should_prune()
    assert in_bracket(study, 3, 0.4).should_prune()


def test_nobody_is_stopped_at_the_last_step() -> None:
    study = optuna.create_study(pruner=AsyncHyperbandPruner(max_resource=3, mode="stop"))
    for value in (0.1, 0.9):
        assert not in_bracket(study, 1, value).should_prune()
