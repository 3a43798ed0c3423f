"""Parameters of a study that runs: numbers of trials, how many there are, and ranges that stay."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.browser import assert_no_error_is_shown, errors_of
from tests.e2e.dashboard.live.study_that_runs import LiveStudy, follows, traces
from tests.e2e.dashboard.test_dashboard_figures import drag

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]

_PARALLEL = """() => {
  const figure = ".js-plotly-plot[data-drawn=plotly]:has(.parcoords)";
  const div = document.querySelector(figure), data = div?.data[0];
  const whole = div?._fullData[0].dimensions;
  const list = each => each == null ? null : Array.from(each);
  return !data ? null : {
    numbers: list(data.customdata),
    names: data.dimensions.map(each => each.label),
    range: list(data.dimensions.find(each => each.label === "lr")?.constraintrange),
    values: list(whole.find(each => each.label === "accuracy (maximize)")?.values),
  };
}"""


@pytest.fixture
def live(live: LiveStudy) -> LiveStudy:
    """Trials of both optimizers have completed, so that the optimizer has an axis of its own."""
    query = """
        select count(distinct param_value) from trials join trial_params using (trial_id)
        join studies using (study_id)
        where study_name = 'live' and state = 'COMPLETE' and param_name = 'optimizer'
    """
    while live.rows(query) != [(2,)]:
        live.release()
    return live


def widths(live: LiveStudy) -> dict[int, float]:
    query = """
        select number, param_value from trials join trial_params using (trial_id)
        join studies using (study_id) where study_name = 'live' and param_name = 'width'
    """
    return dict(live.rows(query))


def caption(page: Page) -> str:
    return page.get_by_text("trials: those that are").inner_text()


def test_points_have_the_numbers_of_their_trials_and_a_click_opens_one(
    live: LiveStudy, page: Page
) -> None:
    errors = errors_of(page)
    page.goto(f"{live.address}/parameters?study=live&figure=slices")
    page.wait_for_function("document.querySelectorAll('[data-drawn=plotly]').length == 2")

    def shown() -> dict[int, tuple[float, float]]:
        names = page.evaluate(
            "() => { const l = document.querySelectorAll('.js-plotly-plot')[1]._fullLayout;"
            " return ['xaxis', 'xaxis2', 'xaxis3'].map(each => l[each].title.text); }"
        )
        one = traces(page, 1)[names.index("width")]
        # A colour by the place in a list would be 0, 1, 2.
        assert one["colour"] == one["numbers"]
        return {n: (x, y) for n, x, y in zip(one["numbers"], one["x"], one["y"], strict=True)}

    def known() -> dict[int, tuple[float, float]]:
        of_all = widths(live)
        return {number: (of_all[number], value) for number, value in live.values().items()}

    follows(page, shown, known)
    assert list(known()) != list(range(len(known())))
    new = live.release()
    follows(page, shown, known)
    assert new in shown()

    point = f"""() => {{
      const div = document.querySelectorAll(".js-plotly-plot")[1];
      const at = div._fullData[0].customdata.indexOf({new});
      const box = div.querySelectorAll(".nsewdrag")[0].getBoundingClientRect();
      const {{ xaxis, yaxis }} = div._fullLayout, trace = div._fullData[0];
      return [box.x + xaxis.d2p(trace.x[at]), box.y + yaxis.d2p(trace.y[at])];
    }}"""
    page.locator(".js-plotly-plot").nth(1).scroll_into_view_if_needed()
    heading = page.get_by_role("heading", name=f"Trial {new}", exact=True)
    for _ in range(20):
        if heading.is_visible():
            break
        page.mouse.move(5, 5)
        page.mouse.move(*page.evaluate(point))
        page.wait_for_timeout(400)
        page.mouse.click(*page.evaluate(point))
        page.wait_for_timeout(2_000)
    heading.wait_for()
    assert f"trial={new}" in page.url
    assert_no_error_is_shown(page)
    assert errors == []


def test_it_is_said_how_many_trials_are_drawn_and_what_is_left_out(
    live: LiveStudy, page: Page
) -> None:
    page.goto(f"{live.address}/parameters?study=live&figure=contour")
    page.wait_for_function("document.querySelectorAll('[data-drawn=plotly]').length == 2")

    def known() -> str:
        n_all = len(live.numbers("1"))
        return f"{len(live.completed())} of {n_all} trials: those that are completed."

    follows(page, lambda: caption(page), known)
    n_sgd = len(
        live.rows("""
            select 1 from trials join trial_params using (trial_id)
            join studies using (study_id) where study_name = 'live' and state = 'COMPLETE'
            and param_name = 'momentum'
        """)
    )
    n = len(live.completed())
    left_out = f"momentum (only {n_sgd} of the {n} trials have it)"
    assert n_sgd < n
    page.get_by_text("Not shown:").filter(has_text=left_out).wait_for()
    # More have completed where tests before this one have released some.
    has_note = page.get_by_text("a surface is drawn from 10 trials on").count
    follows(page, lambda: has_note() == 1, lambda: n < 10)
    follows(page, lambda: "contour" in {each["type"] for each in traces(page, 1)}, lambda: n >= 10)

    page.get_by_text("with pruned trials, at their last value").click()

    def with_paused() -> str:
        # What ran out of memory or returned NaN is infeasible; what failed has no value.
        n_drawn = len(live.completed()) + len(live.paused())
        n_all = len(live.numbers("1"))
        return f"{n_drawn} of {n_all} trials: those that are completed, pruned or paused."

    follows(page, lambda: caption(page), with_paused)
    page.wait_for_function(
        "document.querySelectorAll('.js-plotly-plot')[1]"
        "?.data.some(each => each.type === 'contour')"
    )
    assert_no_error_is_shown(page)


def test_a_range_and_the_order_of_axes_stay_when_a_trial_completes(
    live: LiveStudy, page: Page
) -> None:
    page.goto(f"{live.address}/parameters?study=live")
    page.wait_for_selector("[data-drawn=plotly] .parcoords")

    def parallel() -> dict[str, Any]:
        found: dict[str, Any] = page.evaluate(_PARALLEL) or {"numbers": []}
        return found

    def in_order() -> list[int]:
        """The best last: it is drawn over the others."""
        values = live.values()
        return sorted(values, key=lambda number: values[number])

    follows(page, lambda: parallel()["numbers"], in_order)
    assert parallel()["values"] == [pytest.approx(live.values()[each]) for each in in_order()]
    titles = page.locator(".parcoords .axis-title")
    page.locator(".js-plotly-plot").last.scroll_into_view_if_needed()
    page.wait_for_timeout(1_000)
    names = parallel()["names"]
    lr = titles.nth(names.index("lr")).bounding_box()
    last = titles.nth(len(names) - 1).bounding_box()
    assert lr is not None
    assert last is not None
    across, middle = lr["x"] + lr["width"] / 2, lr["y"] + lr["height"] / 2
    drag(page, (across, lr["y"] + 120), (across, lr["y"] + 220))
    page.wait_for_function(f"({_PARALLEL})()?.range?.length === 2")
    chosen = parallel()["range"]
    drag(page, (across, middle), (last["x"] + last["width"] + 20, middle))
    page.wait_for_function(f"({_PARALLEL})().names.at(-1) === 'lr'")
    moved = parallel()["names"]

    new = live.release()
    follows(page, lambda: parallel()["numbers"], in_order)
    after = parallel()
    assert after["numbers"][-1] == new
    assert (after["names"], after["range"]) == (moved, pytest.approx(chosen))
    assert all(map(math.isfinite, after["values"]))
    assert_no_error_is_shown(page)
