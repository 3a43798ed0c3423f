"""Plain tables, and JSON that every reader accepts."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

from optuna.trial import TrialState

from tuner.domain.attempt import Outcome
from tuner.terminal.tables import as_json, as_json_lines, table
from tuner.terminal.times import ago, seconds, when

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Thing:
    at: datetime
    values: dict[TrialState, tuple[float, ...]]
    outcome: Outcome


def test_columns_stand_below_each_other() -> None:
    assert table(("a", "long", "last"), [("1", "2", "3 4"), ("日本", "5", "")]).splitlines() == [
        "a     long  last",
        "1     2     3 4",
        "日本  5",
    ]


def test_cells_stay_on_their_line() -> None:
    assert table(("a",), [("x\ny\x1b[31m",)]).splitlines() == ["a", "x\\ny\\x1b[31m"]


def test_json_holds_words_instants_and_no_nan() -> None:
    east = timezone(timedelta(hours=2))
    thing = Thing(
        at=NOW.astimezone(east),
        values={TrialState.COMPLETE: (0.5, math.inf, math.nan)},
        outcome=Outcome.OUT_OF_MEMORY,
    )
    assert json.loads(as_json(thing)) == {
        "at": "2026-03-01T12:00:00Z",
        "values": {"completed": [0.5, "inf", "nan"]},
        "outcome": "out_of_memory",
    }


def test_long_lists_have_a_line_for_each() -> None:
    text = as_json_lines([{"a": 1}, {"a": None}])
    assert text.splitlines() == ["[", '{"a": 1},', '{"a": null}', "]"]
    assert as_json_lines([]) == "[]"


def test_times_are_for_people() -> None:
    assert when(NOW) == "2026-03-01 12:00"
    assert ago(NOW, NOW + timedelta(seconds=70)) == "1 min 10 s ago"
    assert ago(NOW, NOW - timedelta(seconds=5)) == "0 s ago"
    assert (when(None), ago(None, NOW), seconds(None)) == ("-", "-", "-")
    assert (seconds(0.04), seconds(9.96), seconds(75)) == ("0.0 s", "10.0 s", "1 min 15 s")
