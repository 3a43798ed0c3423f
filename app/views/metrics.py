"""Any metric, cost or attribute of the trials on any axis; distributions, and trials per hour."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import streamlit as st

from tuner.app.charts.metrics import (
    distribution_figure,
    metric_curves_figure,
    points_figure,
    rates_figure,
)
from tuner.app.charts.style import Titles
from tuner.app.data.columns import Floats
from tuner.app.data.convergence.series import can_be_logarithmic
from tuner.app.data.digits import four_digits
from tuner.app.data.metrics.curves import curve_of, drawn_rows, n_lost, names_of
from tuner.app.data.metrics.distribution import distribution_of, rates_of
from tuner.app.data.metrics.quantities import NUMBER, Sources, quantities
from tuner.app.data.outcome_words import COMPLETED
from tuner.app.data.trials.columns import TrialColumns
from tuner.app.views import shell
from tuner.app.views.figure import show_figure
from tuner.app.views.shell import Shown
from tuner.domain.budget import SECONDS_PER_HOUR
from tuner.terminal.wording import duration

_TRIALS, _STEPS, _DISTRIBUTION, _RATE = "trials", "steps", "distribution", "trials per hour"
_STEP = "step"


def page() -> None:
    st.title("Metrics")
    shell.page_of_a_study(_page)


def _page(shown: Shown) -> None:
    views = {
        _TRIALS: _points,
        _STEPS: _curves,
        _DISTRIBUTION: _spread,
        _RATE: _rate,
    }
    view = views[shell.choice("View", list(views), key="view")]
    shell.live("metrics", lambda: view(shown))


def _known(shown: Shown) -> dict[str, Floats]:
    look, now = shown.look, shell.now()
    trials = look.trials(shown.study)
    sources = Sources(
        trials=trials,
        objectives=shown.objectives,
        figures=look.stored_figures(shown.study, trials),
        params=look.params(shown.study, trials),
        costs=look.costs(shown.study, now),
        now_s=now.timestamp(),
    )
    return quantities(sources)


def _select(label: str, names: Sequence[str], key: str, *, first: int = 0) -> str:
    chosen: str = st.selectbox(
        label, names, index=min(first, len(names) - 1), width=260, key=key, bind="query-params"
    )
    return chosen


def _points(shown: Shown) -> None:
    trials = shown.look.trials(shown.study)
    if not len(trials):
        st.info("The study has no trial yet.")
        return
    known = _known(shown)
    names = list(known)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        y = _select("Y axis", names, "metric_y")
        x = _select("X axis", names, "metric_x", first=names.index(NUMBER))
        log_x = st.toggle("log x", key="metric_log_x", bind="query-params")
        log_y = st.toggle("log y", key="metric_log_y", bind="query-params")
    there = np.isfinite(known[x]) & np.isfinite(known[y])
    _say_who_is_missing(trials, there, [each for each in dict.fromkeys((y, x)) if each != NUMBER])
    _say_who_is_paused(trials, there)
    for name, is_log in ((x, log_x), (y, log_y)):
        _say_what_has_no_logarithm(known[name][there], name, is_log=is_log)
    if not there.any():
        return
    titles = Titles(x=x, y=y, log_x=log_x, log_y=log_y)
    figure = points_figure(trials, known[x], known[y], titles, revision=shown.revision)
    show_figure(figure, key="metrics", on_trial=shell.open_trial)


def _say_who_is_missing(trials: TrialColumns, there: np.ndarray, names: Sequence[str]) -> None:
    n = int((~there).sum())
    if n:
        have = "has" if n == 1 else "have"
        what = shell.escaped(" and ".join(names))
        st.caption(f"{n} of {len(trials)} trials {have} no finite value of {what}.")


def _say_who_is_paused(trials: TrialColumns, there: np.ndarray) -> None:
    n = int((trials.is_paused & there).sum())
    if n:
        drawn = "drawn trial is" if n == 1 else "drawn trials are"
        st.caption(f"{n} {drawn} paused, at the last report.")


def _say_what_has_no_logarithm(values: Floats, name: str, *, is_log: bool) -> None:
    if is_log and not can_be_logarithmic(values):
        n = int((values <= 0).sum())
        st.caption(f"Not on the logarithmic axis: {n} of {shell.escaped(name)}, 0 or below.")


def _curves(shown: Shown) -> None:
    look = shown.look
    trials = look.trials(shown.study)
    rows = drawn_rows(trials, is_maximized=shown.objectives[0].is_maximized)
    some = trials.where(rows)
    value_name = shown.objectives[0].name if len(shown.objectives) == 1 else "reported value"
    reports = look.reports(shown.study, value_name, some)
    names = names_of(reports)
    if not names:
        is_over = bool(trials.is_finished.all())
        st.info(f"No trial has reported a value at a step{'' if is_over else ' yet'}.")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        y = _select("Metric", names, "metric")
        x = _select("X axis", [_STEP, *names], "metric_against")
        weight: float = st.slider(
            "Smoothing",
            0.0,
            0.99,
            0.0,
            0.01,
            width=180,
            help="The weight of what came before in an exponential moving average.",
            key="smoothing",
            bind="query-params",
        )
        log_x = st.toggle("log x", key="metric_log_x", bind="query-params")
        log_y = st.toggle("log y", key="metric_log_y", bind="query-params")
    against = None if x == _STEP else x
    pairs = zip(some.ids.tolist(), some.numbers.tolist(), strict=True)
    curves = {
        number: curve
        for trial_id, number in pairs
        if (curve := curve_of(reports.get(trial_id, {}), y, against, weight)) is not None
    }
    _say_which_curves(len(curves), len(trials), y)
    lost = n_lost(reports, y)
    if lost:
        amount = "1 report" if lost == 1 else f"{lost} reports"
        st.caption(f"Left out: {amount} of {shell.escaped(y)}, infinite or NaN.")
    title = y
    if weight:
        title = f"{y}, moving average of weight {weight:g}"
        st.caption("The faint lines are what was reported.")
    titles = Titles(x=f"{x} (as reported)", y=title, log_x=log_x, log_y=log_y)
    figure = metric_curves_figure(curves, titles, is_smooth=weight > 0, revision=shown.revision)
    show_figure(figure, key="metric curves", on_trial=shell.open_trial)


def _say_which_curves(n_drawn: int, n_trials: int, name: str) -> None:
    if n_drawn < n_trials:
        st.caption(
            f"{n_drawn} of {n_trials} trials: of the 20 best, the 20 newest and up to 20 that run, "
            f"those that have reported {shell.escaped(name)}."
        )


def _spread(shown: Shown) -> None:
    trials = shown.look.trials(shown.study)
    if not len(trials):
        st.info("The study has no trial yet.")
        return
    known = _known(shown)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = _select("Values", list(known), "metric_y")
        log_x = st.toggle("log x", key="metric_log_x", bind="query-params")
    values = known[name]
    there = np.isfinite(values)
    _say_who_is_missing(trials, there, [name])
    _say_who_is_paused(trials, there)
    _say_what_has_no_logarithm(values[there], name, is_log=log_x)
    if not there.any():
        return
    completed = (trials.words == COMPLETED) & there
    lines = {f"all with a value ({int(there.sum())})": distribution_of(values)}
    if 0 < completed.sum() < there.sum():
        lines[f"completed ({int(completed.sum())})"] = distribution_of(values[completed])
    figure = distribution_figure(lines, name, log_x=log_x, revision=shown.revision)
    show_figure(figure, key="distribution")


def _rate(shown: Shown) -> None:
    trials = shown.look.trials(shown.study)
    rates = rates_of(trials, shell.now().timestamp())
    if rates is None:
        st.info("No trial has ended yet.")
        return
    n, span_h = int(trials.is_finished.sum()), float(rates.length_h.sum())
    ended = "1 trial ended" if n == 1 else f"{n} trials ended"
    span = duration(SECONDS_PER_HOUR * span_h)
    st.caption(f"{ended} in {span}: {four_digits(n / span_h)} per hour.")
    if len(rates.length_h) > 1 and rates.length_h[-1] < 0.99 * rates.whole_h:
        st.caption(
            f"The last bar is of {four_digits(60 * rates.length_h[-1])} min, "
            f"the others of {four_digits(60 * rates.whole_h)} min."
        )
    show_figure(rates_figure(rates, trials, revision=shown.revision), key="trials per hour")
