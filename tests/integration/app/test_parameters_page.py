"""Numbers of trials and of points on the page of parameters, held against the database."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.integration.app.charts import numbers_of
from tests.integration.app.pages import figures, opened
from tests.integration.app.paused.test_paused_trials import rows, show
from tests.integration.app.paused_study import N_TRIALS, PausedStudy

__all__ = ["show"]


def known_values(study: PausedStudy, states: str) -> dict[int, tuple[float, float]]:
    """By number: the parameter `x`, and the value."""
    query = f"""
        SELECT number, param_value, value FROM trials JOIN trial_params USING (trial_id)
        JOIN trial_values USING (trial_id) WHERE param_name = 'x' AND state IN ({states})
    """
    return {number: (x, value) for number, x, value in rows(study.end, query)}


@pytest.mark.parametrize("kind", ["slices", "rank", "contour", "parallel coordinates"])
def test_points_have_the_numbers_of_their_trials(
    paused_study: PausedStudy, show: Any, kind: str
) -> None:
    show(paused_study.end)
    test = opened("parameters", state={"figure": kind, "with_pruned": True})
    known = known_values(paused_study, "'COMPLETE', 'PRUNED'")
    assert len(known) == N_TRIALS
    captions = " ".join(each.value for each in test.main.caption)
    assert f"{N_TRIALS} of {N_TRIALS} trials" in captions
    n_with_y = rows(paused_study.end, "SELECT count(*) FROM trial_params WHERE param_name = 'y'")
    assert f"y (only {n_with_y[0][0]} of the {N_TRIALS} trials have it)" in captions
    figure = figures(test)[-1]
    seen = set()
    for trace in figure["data"]:
        if trace["type"] not in ("scatter", "parcoords") or "customdata" not in trace:
            continue
        numbers = [int(each) for each in numbers_of(trace["customdata"])]
        seen |= set(numbers)
        if trace["type"] == "parcoords":
            value_axis, x_axis = trace["dimensions"][:2]
            pairs = zip(numbers_of(x_axis["values"]), numbers_of(value_axis["values"]), strict=True)
            shown = dict(zip(numbers, pairs, strict=True))
            assert shown == {number: pytest.approx(pair) for number, pair in known.items()}
            told = zip(numbers, trace["meta"]["parallel"], strict=True)
            assert all(text.startswith(f"Trial {number}. ") for number, text in told)
        if kind == "slices" and trace.get("xaxis", "x") == "x2":
            pairs = zip(numbers_of(trace["x"]), numbers_of(trace["y"]), strict=True)
            shown = dict(zip(numbers, pairs, strict=True))
            assert shown == {number: pytest.approx(pair) for number, pair in known.items()}
            assert numbers_of(trace["marker"]["color"]) == numbers
        if kind == "rank" and trace.get("hovertext"):
            told = [int(re.findall(r"Trial #(\d+)", each)[0]) for each in trace["hovertext"]]
            assert told == numbers
    assert seen == set(known)


def test_few_completed_trials_are_counted_and_have_no_surface(
    paused_study: PausedStudy, show: Any
) -> None:
    show(paused_study.end)
    known = known_values(paused_study, "'COMPLETE'")
    test = opened("parameters", state={"figure": "contour"})
    captions = " ".join(each.value for each in test.main.caption)
    assert f"{len(known)} of {N_TRIALS} trials: those that are completed." in captions
    drawn = [trace["type"] for figure in figures(test) for trace in figure["data"]]
    assert "contour" not in drawn
