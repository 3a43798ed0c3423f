"""What pages, the report and commands say of paused trials, held against the database."""

from __future__ import annotations

import html
import json
import re
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from tests.integration.app.charts import numbers_of
from tests.integration.app.pages import figures, fine, opened, show_database
from tests.integration.app.paused_study import PausedStudy
from tests.integration.stored_studies import seeded
from tuner.app.report import write_report
from tuner.queries.locate import StoredStudy
from tuner.queries.studies import read_objectives
from tuner.queries.trials.listing import Choice, StoredTrial, read_trials
from tuner.terminal.trials import trials_json, trials_text


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    found = connection.execute(query).fetchall()
    connection.close()
    return found


def last_reports(path: Path, state: str) -> dict[int, tuple[int, float]]:
    """Step and value by trial number."""
    query = f"""
        SELECT number, step, intermediate_value FROM trials
        JOIN trial_intermediate_values USING (trial_id) WHERE state = '{state}' ORDER BY step
    """
    return {number: (step, value) for number, step, value in rows(path, query)}


def attempts(path: Path) -> dict[int, list[tuple[float, float]]]:
    """Seconds since the epoch at which attempts began and ended, by trial number."""
    query = """
        SELECT trials.number, leased_at, ended_at FROM tuner_attempts JOIN trials USING (trial_id)
        WHERE ended_at IS NOT NULL ORDER BY tuner_attempts.number
    """
    found: dict[int, list[tuple[float, float]]] = {}
    for number, *instants in rows(path, query):
        begin, end = (datetime.fromisoformat(each).replace(tzinfo=UTC) for each in instants)
        found.setdefault(number, []).append((begin.timestamp(), end.timestamp()))
    return found


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch) -> Any:
    def shown(path: Path) -> None:
        show_database(monkeypatch, f"sqlite:///{path}")

    return shown


def table(test: AppTest) -> dict[int, Mapping[str, Any]]:
    found = test.dataframe[0].value
    return {int(row["trial"]): row for _, row in found.iterrows()}


def test_the_table_shows_paused_trials_with_their_last_report(
    paused_study: PausedStudy, show: Any
) -> None:
    show(paused_study.middle)
    last = last_reports(paused_study.middle, "WAITING")
    assert last
    test = opened("trials")
    shown = table(test)
    assert {number for number, row in shown.items() if row["outcome"] == "paused"} == set(last)
    for number, (step, value) in last.items():
        assert shown[number]["last step"] == step
        assert shown[number]["last accuracy"] == pytest.approx(value)
    test.pills[0].set_value(["paused"])
    assert set(table(fine(test.run()))) == set(last)


@pytest.mark.parametrize("at", ["middle", "end"])
def test_durations_and_starts_are_those_of_the_attempts(
    paused_study: PausedStudy, show: Any, at: str
) -> None:
    path = getattr(paused_study, at)
    show(path)
    shown, known = table(opened("trials")), attempts(path)
    # The dispatcher of the copy in the middle is dead, and what it suggested ahead never began.
    other = {"abandoned", "waiting"}
    ended = {number for number, row in shown.items() if row["outcome"] not in other}
    assert {number for number, row in shown.items() if row["outcome"] == "waiting"}.isdisjoint(
        known
    )
    assert len(ended) >= 5
    for number in ended:
        expected = sum(end - begin for begin, end in known[number])
        assert shown[number]["duration (s)"] == pytest.approx(expected, abs=0.06)
        started = shown[number]["started (UTC)"].replace(tzinfo=UTC).timestamp()
        assert started == pytest.approx(known[number][0][0], abs=0.001)


def points(figure: Mapping[str, Any]) -> dict[int, tuple[str, float, float]]:
    """Kind, x and y of each trial's point, by number."""
    found = {}
    for trace in figure["data"]:
        if trace["mode"] == "markers":
            columns = [numbers_of(trace[key]) for key in ("customdata", "x", "y")]
            for number, x, y in zip(*columns, strict=True):
                found[int(number)] = (trace["name"], x, y)
    return found


def check_times(figure: Mapping[str, Any], path: Path) -> None:
    known = attempts(path)
    first = min(begin for each in known.values() for begin, _ in each)
    shown = points(figure)
    title = figure["layout"]["xaxis"]["title"]["text"]
    unit_s = {"s": 1.0, "min": 60.0}[re.findall(r"\((\w+)\)", title)[0]]
    for number, (_, x, _) in shown.items():
        assert x * unit_s == pytest.approx(known[number][-1][1] - first, abs=0.05)
    assert len({round(x, 3) for _, x, _ in shown.values()}) == len(shown)


@pytest.mark.parametrize("at", ["middle", "end"])
def test_convergence_against_wall_time_has_each_trial_where_it_was_left(
    paused_study: PausedStudy, show: Any, at: str
) -> None:
    path = getattr(paused_study, at)
    show(path)
    (figure,) = figures(opened("convergence", against="wall time"))
    check_times(figure, path)
    if at == "middle":
        last = last_reports(path, "WAITING")
        paused = {n: y for n, (name, _, y) in points(figure).items() if name == "paused"}
        assert paused == {n: pytest.approx(value) for n, (_, value) in last.items()}


def test_the_report_has_the_same_times(paused_study: PausedStudy, tmp_path: Path) -> None:
    path = paused_study.end
    (study_id,) = rows(path, "SELECT study_id FROM studies WHERE study_name = 'paused'")[0]
    output = tmp_path / "report.html"
    study = StoredStudy(id=study_id, name="paused")
    write_report(f"sqlite:///{path}", study, output, datetime.now(UTC))
    found = re.findall(
        r'<script type="application/json" id="([^"]*)">(.*?)</script>', output.read_text()
    )
    by_name = {html.unescape(name): json.loads(text) for name, text in found}
    check_times(by_name["Convergence of accuracy against wall time"], path)


def read(path: Path, **choice: Any) -> list[StoredTrial]:
    with seeded.looking(f"sqlite:///{path}") as connection:
        study_id = seeded.study_id(connection, "paused")
        objectives = read_objectives(connection)[study_id]
        now = datetime.now(UTC)
        return read_trials(connection, study_id, objectives, Choice(**choice), now=now)


def test_tuner_trials_shows_paused_trials_with_their_last_report(
    paused_study: PausedStudy,
) -> None:
    last = last_reports(paused_study.middle, "WAITING")
    found = read(paused_study.middle, states=frozenset({"paused"}))
    assert {each.number for each in found} == set(last)
    assert not read(paused_study.middle, states=frozenset({"waiting"}))
    with seeded.looking(f"sqlite:///{paused_study.middle}") as connection:
        objectives = read_objectives(connection)[seeded.study_id(connection, "paused")]
    lines = trials_text(found, objectives).splitlines()[1:]
    for line, (number, (step, value)) in zip(lines, sorted(last.items()), strict=True):
        assert line.split()[0] == str(number)
        assert f"paused at step {step}" in line
        assert f"{value:.6g}" in line
    for each in json.loads(trials_json(found)):
        assert each["last_step"] == last[each["number"]][0]
        assert each["last_values"] == {"accuracy": pytest.approx(last[each["number"]][1])}


def test_tuner_trials_takes_durations_from_attempts(paused_study: PausedStudy) -> None:
    known = attempts(paused_study.end)
    for each in read(paused_study.end):
        expected = sum(end - begin for begin, end in known[each.number])
        assert each.duration_s == pytest.approx(expected, abs=1e-5)
        assert each.started_at is not None
        assert each.completed_at is not None
        assert each.started_at.timestamp() == pytest.approx(known[each.number][0][0])
        assert each.completed_at.timestamp() == pytest.approx(known[each.number][-1][1])
    longest = [each.duration_s for each in read(paused_study.end, sort="duration")]
    assert np.all(np.diff([each or 0.0 for each in longest]) <= 0)
