"""How the study converges: best so far, every trial as a point, the Pareto front."""

from __future__ import annotations

import numpy as np
import streamlit as st

from app.charts.convergence import convergence_figure, pareto_figure
from app.data.convergence import (
    Axis,
    best_so_far,
    can_be_logarithmic,
    pareto_front,
    scale_of,
)
from app.data.trial_columns import Floats, TrialColumns
from app.views import shell
from app.views.shell import Shown


def page() -> None:
    st.title("Convergence")
    shell.page_of_a_study(_page)


def _page(shown: Shown) -> None:
    names = [each.name for each in shown.objectives]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        axis = st.segmented_control(
            "Against", list(Axis), format_func=lambda each: each.value, default=Axis.TRIALS
        )
        place = 0
        if len(names) > 1:
            place = names.index(st.selectbox("Objective", names, width=220))
        log_x = st.toggle("log x")
        log_y = st.toggle("log y")
    axis = axis or Axis.TRIALS
    shell.live("convergence", lambda: _progress(shown, axis, place, log_x=log_x, log_y=log_y))
    if len(names) > 1:
        places = (0, 1)
        if len(names) > 2:
            others = st.multiselect("Pareto front of", names, names[:2], max_selections=2)
            if len(others) < 2:
                return
            places = (names.index(others[0]), names.index(others[1]))
        shell.live("pareto", lambda: _front(shown, places))


def _progress(shown: Shown, axis: Axis, place: int, *, log_x: bool, log_y: bool) -> None:
    trials = shown.look.trials(shown.study)
    if not trials.is_finished.any():
        st.info(f"No trial has ended yet; {len(trials)} run or wait.")
        return
    needs_leases = axis is Axis.DEVICE_HOURS
    leases = shown.look.leases(shown.study, shell.now()) if needs_leases else None
    scale = scale_of(trials, axis, leases)
    if needs_leases and np.isnan(scale.values).all():
        st.info("The tuner did not run these trials: how long they held devices is not known.")
        return
    objective = shown.objectives[place]
    best = best_so_far(trials, scale, place, is_maximized=objective.is_maximized)
    _numbers(trials, objective.name, best.y)
    log_x, log_y = _possible(scale.values, trials.values[:, place], log_x=log_x, log_y=log_y)
    figure = convergence_figure(
        trials,
        scale,
        best,
        objective,
        place=place,
        revision=shown.revision,
        log_x=log_x,
        log_y=log_y,
    )
    st.plotly_chart(figure, key="convergence")


def _numbers(trials: TrialColumns, name: str, best: Floats) -> None:
    with st.container(horizontal=True):
        st.metric(f"best {name}", f"{best[-1]:.6g}" if len(best) else "none yet")
        st.metric("trials finished", int(trials.is_finished.sum()))
        st.metric("trials running or waiting", int((~trials.is_finished).sum()))


def _possible(
    x: Floats,
    y: Floats,
    *,
    log_x: bool,
    log_y: bool,
) -> tuple[bool, bool]:
    if log_y and not can_be_logarithmic(y):
        st.caption("Some values are 0 or below: they have no place on a logarithmic axis.")
        log_y = False
    # Trial 0 alone would be left out, which is no reason to refuse.
    return log_x and bool((x[np.isfinite(x)] > 0).any()), log_y


def _front(shown: Shown, places: tuple[int, int]) -> None:
    trials = shown.look.trials(shown.study)
    if not trials.is_candidate.any():
        st.info("No trial has completed with a value for each objective yet.")
        return
    pair = (shown.objectives[places[0]], shown.objectives[places[1]])
    front = pareto_front(trials, [each.is_maximized for each in shown.objectives])
    st.subheader(f"Pareto front: {int(front.sum())} trials")
    figure = pareto_figure(trials, front, pair, places, revision=f"{shown.revision} {places}")
    st.plotly_chart(figure, key="pareto")
