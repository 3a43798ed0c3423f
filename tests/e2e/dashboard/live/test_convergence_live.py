"""Convergence of a study that runs: another study on the same axis, the best part, a front."""

from __future__ import annotations

from typing import TYPE_CHECKING

import optuna
import pytest

from tests.e2e.browser import DRAWN, assert_no_error_is_shown
from tests.e2e.dashboard.live.study_that_runs import (
    FAILED,
    FAR_OFF,
    NOT_A_NUMBER,
    OUT_OF_MEMORY,
    LiveStudy,
    follows,
    line_of,
    points,
    traces,
)
from tuner.app.data.digits import four_digits
from tuner.store.optuna_tables.statements import OBJECTIVES_ATTR

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]

_Y_RANGE = "() => document.querySelector('.js-plotly-plot')._fullLayout.yaxis.range"


def test_another_study_is_drawn_in_its_own_direction_or_refused(
    live: LiveStudy, page: Page
) -> None:
    page.goto(f"{live.address}/convergence?study=live&beside=falling&all_values=true")
    page.locator(DRAWN).wait_for()
    follows(page, lambda: line_of(page, "best of falling (minimize)")[:3], lambda: [9.0, 4.0, 2.0])
    storage = optuna.load_study(study_name="falling", storage=live.url)
    trial = storage.ask({"lr": optuna.distributions.FloatDistribution(0, 1)})
    storage.tell(trial, 1.5)
    follows(page, lambda: line_of(page, "best of falling (minimize)")[-1], lambda: 1.5)
    page.goto(f"{live.address}/convergence?study=live&beside=other")
    page.locator(DRAWN).wait_for()
    refusal = "Study other is not drawn: it has no objective accuracy, only loss."
    page.get_by_text(refusal).wait_for()
    assert not [each for each in traces(page) if "other" in each["name"]]
    assert_no_error_is_shown(page)


def test_the_axis_shows_the_best_part_and_the_line_the_best_so_far(
    live: LiveStudy, page: Page
) -> None:
    page.goto(f"{live.address}/convergence?study=live")
    page.locator(DRAWN).wait_for()

    def best() -> list[float]:
        found: list[float] = []
        for number in live.completed():
            value = live.values()[number]
            if not found or value > found[-1]:
                found.append(value)
        return found

    def stairs() -> list[float]:
        return list(dict.fromkeys(line_of(page, "best so far")))

    follows(page, stairs, best)
    live.release()
    follows(page, stairs, best)
    follows(
        page,
        lambda: page.get_by_test_id("stMetricValue").first.inner_text(),
        lambda: four_digits(best()[-1]),
    )
    low, high = page.evaluate(_Y_RANGE)
    assert 0 < low < best()[-1] < high < 1
    shown = [y for _, y in points(page, "completed").values()]
    shown += [y for _, y in points(page, "paused").values()]
    n_outside = sum(not low <= each <= high for each in shown)
    page.get_by_text(f"{n_outside} trials are outside of it").wait_for()
    page.get_by_text("all values", exact=True).first.click()
    far = live.paused()[FAR_OFF][1]
    page.wait_for_function(f"far => ({_Y_RANGE})()[0] < far", arg=far)
    assert_no_error_is_shown(page)


def test_failures_are_named_and_have_no_value(live: LiveStudy, page: Page) -> None:
    page.goto(f"{live.address}/convergence?study=live")
    page.locator(DRAWN).wait_for()
    words = {"out of memory": OUT_OF_MEMORY, "not a number": NOT_A_NUMBER, "failed": FAILED}
    axes = """() => Object.fromEntries(
      document.querySelector(".js-plotly-plot")._fullData.map(each => [each.name, each.yaxis]))"""
    for word, number in words.items():
        follows(page, lambda word=word: list(points(page, word)), lambda number=number: [number])
        assert page.evaluate(axes)[word] == "y2"
    assert live.numbers("state = 'PRUNED'") == [OUT_OF_MEMORY, NOT_A_NUMBER]
    assert "pruned" not in {each["name"] for each in traces(page)}


def test_a_front_is_a_staircase_and_its_hypervolume_grows(live: LiveStudy, page: Page) -> None:
    study = optuna.create_study(
        storage=live.url, study_name="front", directions=["maximize", "minimize"]
    )
    study.set_user_attr(OBJECTIVES_ATTR, ["accuracy", "seconds"])
    space = {"lr": optuna.distributions.FloatDistribution(0, 1)}
    for values in ([0.5, 2.0], [0.9, 6.0], [0.4, 8.0]):
        study.tell(study.ask(space), values)
    page.goto(f"{live.address}/convergence?study=front")
    page.get_by_role("heading", name="Pareto front: 2 trials").wait_for()
    page.wait_for_function("document.querySelectorAll('[data-drawn=plotly]').length == 3")

    def edge() -> list[tuple[float, float]]:
        (found,) = [
            each for each in traces(page, 1) if each["mode"] == "lines" and not each["numbers"]
        ]
        assert found["shape"] == "vh"
        return list(zip(found["x"], found["y"], strict=True))

    follows(page, edge, lambda: [(0.5, 2.0), (0.9, 6.0)])
    study.tell(study.ask(space), [0.7, 3.0])
    page.get_by_role("heading", name="Pareto front: 3 trials").wait_for()
    follows(page, edge, lambda: [(0.5, 2.0), (0.7, 3.0), (0.9, 6.0)])
    said = "the worst completed values (accuracy 0.4, seconds 8), and the best ones (accuracy 0.9"
    page.get_by_text(said).wait_for()
    # Of the box from (0.4, 8) to (0.9, 2): 0.1 x 6 + 0.2 x 5 + 0.2 x 2, of 0.5 x 6.
    follows(page, lambda: round(traces(page, 2)[0]["y"][-1], 6), lambda: round(2.0 / 3.0, 6))
    assert_no_error_is_shown(page)
