"""The best configurations, to be copied."""

from __future__ import annotations

import streamlit as st

from tuner.app.data.best import python_lines, why_confirmed
from tuner.app.data.convergence.spread import spread_of
from tuner.app.data.digits import four_digits
from tuner.app.data.outcome_words import COMPLETED
from tuner.app.views import shell
from tuner.app.views.shell import Shown
from tuner.queries.results.format_names import Format
from tuner.queries.results.formats import render

_FORMS = {
    "YAML": (Format.YAML, "yaml"),
    "JSON": (Format.JSON, "json"),
    "argv": (Format.ARGS, "bash"),
    "environment": (Format.ENV, "bash"),
}


def page() -> None:
    st.title("Best")
    shell.page_of_a_study(_page)


def _page(shown: Shown) -> None:
    is_front = len(shown.objectives) > 1
    n = st.number_input(
        "How many", min_value=1, max_value=100, value=1, width=160, key="n", bind="query-params"
    )
    if is_front:
        st.caption("Of the Pareto front, ordered by the first objective.")
    shell.live("best", lambda: _best(shown, int(n)))


def _best(shown: Shown, n: int) -> None:
    found = shown.look.best(shown.study, n=n, now=shell.now())
    if not found:
        st.info(_why_none(shown))
        return
    _confirmed(shown)
    best = found[0]
    st.markdown(f"Trial **{best.trial_number}**: {shell.values_as_text(best.values)}")
    for tab, (title, (form, language)) in zip(st.tabs(list(_FORMS)), _FORMS.items(), strict=True):
        with tab:
            text = render(found, form)
            st.code(text, language=language, wrap_lines=True)
            st.download_button(
                "Download", text, f"{shown.study.name}.{language}", key=f"download {title}"
            )
    for each in shown.look.range_ends(shown.study):
        st.info(shell.escaped(each.text))
    _spread(shown)
    st.subheader("In Python")
    st.code(python_lines(shown.look.shown_url, shown.study.name), language="python")
    st.caption(
        "In a training script `tuner.current()` takes the same configuration when it runs alone."
    )


def _why_none(shown: Shown) -> str:
    trials = shown.look.trials(shown.study)
    n = int((trials.words == COMPLETED).sum())
    if not n:
        return "No trial has completed yet: there is no best configuration."
    return (
        f"There is no best configuration: {n} trials completed, but each returned an infinite "
        "value or NaN, or violates a constraint."
    )


def _confirmed(shown: Shown) -> None:
    """Results of confirmation runs, if there are any."""
    confirmation = shown.look.confirmation(shown.study)
    if confirmation is None or not confirmation.leaders:
        return
    trials = shown.look.trials(shown.study)
    single = dict(zip(trials.numbers.tolist(), trials.values[:, 0].tolist(), strict=True))
    leaders = confirmation.leaders
    name = shown.objectives[0].name
    columns: dict[str, list[float | int | None]] = {
        "trial": [each.trial_number for each in leaders],
        f"mean {name}": [each.mean for each in leaders],
        "standard deviation": [each.deviation for each in leaders],
        "confirmation runs": [len(each.values) for each in leaders],
        "probability of the best mean": [each.p_best for each in leaders],
        f"single {name}": [single.get(each.trial_number) for each in leaders],
    }
    st.dataframe(
        columns,
        hide_index=True,
        placeholder="",
        key="confirmed",
        column_config=shell.column_formats(columns),
    )
    st.markdown(why_confirmed(confirmation, shown.objectives[0], trials))


def _spread(shown: Shown) -> None:
    if len(shown.objectives) > 1:
        return
    objective = shown.objectives[0]
    trials = shown.look.trials(shown.study)
    found = spread_of(trials, is_maximized=objective.is_maximized)
    if found is None:
        return
    st.subheader("How sure it is")
    st.caption(
        f"The best {len(found.values)} differ by {four_digits(found.width)}, which is "
        f"{_percent(found.share)} of the range of all finite values of completed trials. Where "
        "that is less than a second try of the same trial would differ, they are equally good."
    )
    columns: dict[str, list[float | int]] = {
        "trial": list(found.numbers),
        objective.name: list(found.values),
        "behind the best": [abs(each - found.values[0]) for each in found.values],
    }
    config = shell.column_formats(columns)
    st.dataframe(
        columns, hide_index=True, placeholder="", width=420, key="spread", column_config=config
    )


def _percent(share: float) -> str:
    """`0.4 %`; a positive share is never shown as 0."""
    return "less than 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"
