"""Learning curves: the reports of all trials, and one trial among its rivals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import streamlit as st

from tuner.app.charts.lineage import lineage_figure
from tuner.app.charts.many_curves import CurveAxes, many_curves_figure
from tuner.app.charts.schedule import members_of, schedule_figure
from tuner.app.charts.style import to_json
from tuner.app.data.trials.columns import TrialColumns
from tuner.app.data.trials.curves import MAX_CURVES, Curves, pick
from tuner.app.views import shell
from tuner.app.views.figure import show_figure
from tuner.app.views.shell import Shown

_MAX_NAMED = 10
_PICK_KEY = "trial_among_rivals"
#: A click reruns the figure alone; the number above it, and the address, are others then.
_REDRAW_KEY = "curves_redraw"


def page() -> None:
    st.title("Learning curves")
    shell.page_of_a_study(_page)


def _page(shown: Shown) -> None:
    _begin_with_a_trial()
    shell.warn_of_bad_trial(shown)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.number_input(
            "Trial among its rivals (number)",
            min_value=0,
            step=1,
            value=None,
            width=260,
            key=_PICK_KEY,
            placeholder="none; or click a curve",
        )
        log_x = st.toggle("log x", key="log_step", bind="query-params")
        log_y = st.toggle("log y", key="log_value", bind="query-params")
    shell.live("curves", lambda: _curves(shown, log_x=log_x, log_y=log_y))


def _begin_with_a_trial() -> None:
    if _PICK_KEY not in st.session_state:
        st.session_state[_PICK_KEY] = shell.chosen_trial()
    shell.choose_trial(st.session_state[_PICK_KEY])


def _pick(number: int) -> None:
    st.session_state[_PICK_KEY] = number
    st.session_state[_REDRAW_KEY] = True


def _curves(shown: Shown, *, log_x: bool, log_y: bool) -> None:
    if st.session_state.pop(_REDRAW_KEY, False):
        st.rerun()
    picked: int | None = st.session_state.get(_PICK_KEY)
    name = shown.objectives[0].name if len(shown.objectives) == 1 else "reported value"
    axes = CurveAxes(name=f"{name} (as reported)", log_x=log_x, log_y=log_y)
    drawn = draw_curves(shown, axes, picked)
    if drawn.without_values:
        st.caption(_about_lost(drawn.without_values))
    if not drawn.n_curves:
        if not drawn.without_values:
            st.info(_why_empty(shown))
        if picked is not None:
            _why(shown, picked)
        return
    if drawn.n_trials > MAX_CURVES:
        st.caption(
            f"{drawn.n_curves} curves of {drawn.n_trials} trials: those that run, the best, the "
            "newest, and some of all times; of each curve the extremes."
        )
    show_figure(drawn.curves, key="curves", on_trial=_pick)
    if drawn.population:
        st.subheader("Population")
        st.caption(
            "Which trial continued from which checkpoint: each colour is a first member with all "
            "its descendants. The dot at the start of a copy shows what changed; select a trial "
            "to see its training from the first step."
        )
        show_figure(drawn.population, key="population", on_trial=_pick)
        if drawn.schedule:
            st.subheader("Schedule")
            st.caption(
                "Parameters over the steps: a line for each trial, in the colour of its family; a "
                "dotted line leads from the value of the copied trial to that of its copy."
            )
            show_figure(drawn.schedule, key="schedule", on_trial=_pick)
    if picked is not None:
        _why(shown, picked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Figures as JSON."""

    curves: str
    #: Empty if the study has no population.
    population: str
    #: Empty if the study has no population, or all its members have the same parameters.
    schedule: str
    n_curves: int
    #: Numbers of trials with only infinite or NaN reports.
    without_values: tuple[int, ...]
    n_trials: int


def _why_empty(shown: Shown) -> str:
    if len(shown.objectives) > 1:
        return (
            "Optuna keeps no curve of several objectives. The page Metrics (View: steps) shows "
            "what trials reported of each."
        )
    is_over = bool(shown.look.trials(shown.study).is_finished.all())
    return f"No trial has reported a value at a step{'' if is_over else ' yet'}."


def _about_lost(numbers: Sequence[int]) -> str:
    some = ", ".join(map(str, numbers[:_MAX_NAMED]))
    more = f" and {len(numbers) - _MAX_NAMED} more" if len(numbers) > _MAX_NAMED else ""
    trials = "Trial" if len(numbers) == 1 else "Trials"
    return f"{trials} {some}{more} reported only infinite values or NaN: no curve."


def draw_curves(shown: Shown, axes: CurveAxes, picked: int | None) -> Drawn:
    """Draws curves.

    Args:
        shown: The study.
        axes: Axes of both figures.
        picked: Number of a highlighted trial.
    """
    look = shown.look
    trials = look.trials(shown.study)
    is_maximized = shown.objectives[0].is_maximized

    def chosen() -> TrialColumns:
        return trials.where(pick(trials, is_maximized=is_maximized, also=picked))

    some = look.kept.get(("picked", shown.study, picked), (trials,), chosen)
    curves = look.curves(shown.study, some)

    def make() -> Drawn:
        figure = many_curves_figure(
            curves,
            some,
            axes,
            rungs=look.rungs(shown.study, _last_step(curves)) if curves else (),
            picked=picked,
            revision=shown.revision,
        )
        return Drawn(
            curves=to_json(figure),
            population=_draw_population(shown, curves, axes, picked),
            schedule=_draw_schedule(shown, some, curves),
            n_curves=len(curves),
            without_values=tuple(look.trials_without_curve(shown.study, some)),
            n_trials=len(trials),
        )

    return look.kept.get(("curves", shown.study, axes, picked), (some, curves), make)


def _draw_population(shown: Shown, curves: Curves, axes: CurveAxes, picked: int | None) -> str:
    lineage = shown.look.lineage(shown.study)
    if lineage is None:
        return ""
    return to_json(lineage_figure(curves, lineage, axes, picked=picked, revision=shown.revision))


def _draw_schedule(shown: Shown, trials: TrialColumns, curves: Curves) -> str:
    lineage = shown.look.lineage(shown.study)
    if lineage is None or not curves:
        return ""
    by_id = shown.look.params(shown.study, shown.look.trials(shown.study))
    ids = dict(zip(trials.numbers.tolist(), trials.ids.tolist(), strict=True))
    params = {number: by_id.get(ids[number], {}) for number in curves}
    space = shown.look.distributions(shown.study)
    names = [name for name in space if len({repr(each.get(name)) for each in params.values()}) > 1]
    if not names:
        return ""
    logarithmic = frozenset(name for name in names if getattr(space[name], "log", False))
    members = members_of(curves, lineage)
    figure = schedule_figure(members, params, names, log_names=logarithmic, revision=shown.revision)
    return to_json(figure)


def _last_step(curves: Curves) -> int:
    return int(max(np.max(curve.steps) for curve in curves.values()))


def _why(shown: Shown, number: int) -> None:
    found = shown.look.trial(shown.study, number, shell.now())
    if found is None:
        st.warning(f"There is no trial {number} in study {shell.escaped(shown.study.name)}.")
        return
    st.subheader(f"Trial {number}")
    st.code(found.why, language=None, wrap_lines=True)
    st.button("All about this trial", on_click=shell.open_trial, args=(number,))
