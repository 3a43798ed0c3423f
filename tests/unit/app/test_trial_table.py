"""The table of trials."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.unit.app.columns import ACCURACY, LOSS, NAN, trials
from tuner.app.data.trials.table import chosen, table_of, words_of

NOW = datetime.fromtimestamp(100, UTC)


def test_newest_first_and_only_the_outcomes_asked_for() -> None:
    columns = trials([1.0, NAN, 2.0], words=["completed", "failed", "completed"])
    assert words_of(columns) == ["completed", "failed"]
    assert chosen(columns, []).numbers.tolist() == [2, 1, 0]
    assert chosen(columns, ["failed"]).numbers.tolist() == [1]


def test_a_trial_that_runs_has_a_duration_until_now_and_no_value() -> None:
    columns = trials([NAN], words=["running"], started_at_s=[40.0])
    table = table_of(columns, [LOSS], {100: {"lr": 0.1}}, NOW)
    assert (table["loss"], table["duration (s)"], table["lr"]) == ([None], [60.0], [0.1])


def test_columns_have_one_type_and_a_name_each() -> None:
    columns = trials([[1.0, 2.0], [3.0, 4.0]], infeasible=[1])
    params = {100: {"loss": 1, "kind": "a"}, 101: {"loss": 0.5, "kind": 3}}
    table = table_of(columns, [LOSS, ACCURACY], params, NOW)
    assert table["loss"] == [1.0, 3.0]
    assert table["loss (parameter)"] == [1, 0.5]
    assert table["kind"] == ["a", "3"]
    assert table["infeasible"] == [False, True]


def test_the_choice_none_is_not_a_parameter_that_is_absent() -> None:
    params = {100: {"kind": None, "other": "a"}, 101: {"other": "b"}}
    table = table_of(trials([1.0, 2.0]), [LOSS], params, NOW)
    assert table["kind"] == ["None", None]
    table = table_of(trials([1.0, 2.0]), [LOSS], {100: {"kind": None}, 101: {"kind": 3}}, NOW)
    assert table["kind"] == ["None", "3"]


def test_no_trials() -> None:
    table = table_of(trials([]), [LOSS], {}, NOW)
    assert {len(cells) for cells in table.values()} == {0}
