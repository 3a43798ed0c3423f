"""The best configurations, to be copied."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from tuner.app.data.best import python_lines
from tuner.app.data.convergence.spread import spread_of
from tuner.app.views import shell
from tuner.app.views.shell import Shown
from tuner.results.best import BestConfiguration, render
from tuner.results.formats import Format
from tuner.terminal.wording import values_text

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
        st.info("No trial has completed yet: there is no best configuration.")
        return
    best = found[0]
    st.markdown(f"Trial **{best.trial_number}**: {values_text(best.values)}")
    for tab, (title, (form, language)) in zip(st.tabs(list(_FORMS)), _FORMS.items(), strict=True):
        with tab:
            text = render(found, form)
            st.code(text, language=language, wrap_lines=True)
            st.download_button(
                "Download", text, f"{shown.study.name}.{language}", key=f"download {title}"
            )
    _confirmed(found)
    _spread(shown)
    st.subheader("In Python")
    st.code(python_lines(shown.look.shown_url, shown.study.name), language="python")
    st.caption(
        "In a training script `tuner.current()` takes the same configuration when it runs alone."
    )


def _confirmed(found: Sequence[BestConfiguration]) -> None:
    """What fresh runs gave, where the study file asks for them."""
    known = [(each.trial_number, each.confirmed) for each in found if each.confirmed]
    if not known:
        return
    st.subheader("Run again")
    st.caption(
        "Fresh runs with other seeds. The probability is that the configuration's mean is the best "
        "of all that were run again."
    )
    columns = {
        "trial": [number for number, _ in known],
        "runs": [each.n_runs for _, each in known],
        "mean": [each.mean for _, each in known],
        "deviation": [each.deviation for _, each in known],
        "probability": [each.probability_best for _, each in known],
    }
    st.dataframe(columns, hide_index=True, width=520, key="confirmed")


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
        f"The best {len(found.values)} differ by {found.width:.3g}, which is "
        f"{100 * found.share:.1f} % of the range of all completed values. Where that is less than "
        "a second try of the same trial would differ, they are equally good."
    )
    columns = {
        "trial": list(found.numbers),
        objective.name: list(found.values),
        "behind the best": [abs(each - found.values[0]) for each in found.values],
    }
    st.dataframe(columns, hide_index=True, width=420, key="spread")
