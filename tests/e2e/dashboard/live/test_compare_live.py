"""Trials and studies side by side, and any metric on any axis, while a study runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import optuna
import pytest

from tests.e2e.browser import DRAWN, assert_no_error_is_shown
from tests.e2e.dashboard.live.study_that_runs import (
    N_STEPS,
    LiveStudy,
    follows,
    points,
    table,
    traces,
)
from tuner.app.data.digits import four_digits

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]


def test_trials_side_by_side_follow_the_one_that_runs(live: LiveStudy, page: Page) -> None:
    whole, running = live.completed()[-1], live.held()[0]
    page.goto(f"{live.address}/compare?study=live&trials={whole},{running}")
    page.wait_for_function("document.querySelectorAll('[data-drawn=plotly]').length >= 2")

    def rows() -> dict[str, dict[str, str]]:
        return {row[""]: row for row in table(page, 1) if "" in row}

    follows(
        page,
        lambda: {n: rows().get("outcome", {}).get(f"trial {n}") for n in (whole, running)},
        lambda: {whole: "completed", running: "running"},
    )
    names = list(rows())
    assert names.index("lr") < names.index("outcome") < names.index("epochs (same)")
    assert rows()["result"][f"trial {whole}"] == f"accuracy {four_digits(live.values()[whole])}"
    assert rows()["last report"][f"trial {running}"].startswith("step 1: accuracy")

    def steps() -> dict[str, int]:
        return {each["name"]: len(each["x"]) for each in traces(page)}

    follows(page, steps, lambda: {f"trial {whole}": N_STEPS, f"trial {running}": 1})
    assert live.release() == running
    follows(page, steps, lambda: {f"trial {whole}": N_STEPS, f"trial {running}": N_STEPS})
    result = f"accuracy {four_digits(live.values()[running])}"
    follows(page, lambda: rows()["result"][f"trial {running}"], lambda: result)
    assert f"trials={whole}" in page.url
    assert_no_error_is_shown(page)


def test_studies_that_differ_by_a_seed_are_one_band(live: LiveStudy, page: Page) -> None:
    page.goto(f"{live.address}/compare?study=live&studies=seed-1&studies=seed-2&studies=live")
    page.locator(DRAWN).wait_for()
    seeds = {"seed-1": [0.1, 0.5, 0.7], "seed-2": [0.3, 0.4, 0.9]}

    def band() -> tuple[list[float], list[float]]:
        """Lowest and highest best so far at each trial."""
        highest = [[max(each[: n + 1]) for n in range(3)] for each in seeds.values()]
        columns = list(zip(*highest, strict=True))
        return [min(each) for each in columns], [max(each) for each in columns]

    def shown() -> Any:
        found = [each for each in traces(page) if "seed" in each["name"] and each["y"]]
        values = [value for each in found for value in each["y"]]
        return (min(values, default=None), max(values, default=None))

    follows(page, shown, lambda: (band()[0][0], band()[1][-1]))
    assert len([each for each in traces(page) if each["name"].startswith("live")]) == 1
    study = optuna.load_study(study_name="seed-2", storage=live.url)
    study.tell(study.ask({"lr": optuna.distributions.FloatDistribution(0, 1)}), 0.95)
    first = optuna.load_study(study_name="seed-1", storage=live.url)
    first.tell(first.ask({"lr": optuna.distributions.FloatDistribution(0, 1)}), 0.6)
    follows(page, shown, lambda: (0.1, 0.95))
    page.get_by_text("band over seeds").click()
    names = {"seed-1", "seed-2", "live"}
    follows(page, lambda: {each["name"] for each in traces(page)}, lambda: names)
    assert_no_error_is_shown(page)


def test_an_attribute_of_a_trial_against_its_cost(live: LiveStudy, page: Page) -> None:
    page.goto(f"{live.address}/metrics?study=live&metric_y=size_mb&metric_x=device-seconds")
    page.locator(DRAWN).wait_for()

    def sizes() -> dict[int, float]:
        query = """
            select number, value_json from trials join trial_user_attributes a using (trial_id)
            where a.key = 'size_mb' and state = 'COMPLETE'
        """
        return {number: float(value) for number, value in live.rows(query)}

    def shown() -> dict[int, float]:
        return {number: y for number, (_, y) in points(page, "completed").items()}

    follows(page, shown, sizes)
    new = live.release()
    follows(page, shown, sizes)
    query = """
        select sum(coalesce(julianday(finished_at), julianday(ended_at)) - julianday(leased_at))
        from tuner_attempts join trials using (trial_id) where trials.number = ?
    """
    ((days,),) = live.rows(query, new)
    assert points(page, "completed")[new][0] == pytest.approx(86_400 * days, abs=1.0)
    assert_no_error_is_shown(page)


def test_a_smoothed_curve_keeps_what_was_reported(live: LiveStudy, page: Page) -> None:
    number = live.release()
    page.goto(f"{live.address}/metrics?study=live&view=steps&metric=latency_ms&smoothing=0.9")
    page.locator(DRAWN).wait_for()
    page.get_by_text("The faint lines are what was reported.").wait_for()
    query = """
        select step, value from tuner_metrics m join tuner_attempts a on a.id = m.attempt_id
        join trials using (trial_id) where m.name = 'latency_ms' and trials.number = ? order by step
    """
    reported = [value for _, value in live.rows(query, number)]
    assert len(reported) == N_STEPS

    def lines() -> list[list[float]]:
        return [
            each["y"]
            for each in traces(page)
            if each["y"] and each["numbers"] and set(each["numbers"]) == {number}
        ]

    follows(page, lambda: pytest.approx(reported) in lines(), lambda: True)
    assert_no_error_is_shown(page)


def test_a_timeline_of_a_study_that_only_optuna_runs_follows_it(
    live: LiveStudy, page: Page
) -> None:
    page.goto(f"{live.address}/devices?study=falling")
    page.locator(DRAWN).wait_for()
    study = optuna.load_study(study_name="falling", storage=live.url)

    def known() -> int:
        return len(study.get_trials(deepcopy=False))

    def shown() -> int:
        """Trials that are too short to be told apart share a bar, which says how many they are."""
        texts = [text for each in traces(page) for text in each["numbers"] or ()]
        several = re.compile(r"(\d+) trials, the first is trial")
        return sum(int(found[1]) if (found := several.search(each)) else 1 for each in texts)

    follows(page, shown, known)
    study.tell(study.ask({"lr": optuna.distributions.FloatDistribution(0, 1)}), 3.0)
    follows(page, shown, known)
    assert_no_error_is_shown(page)
