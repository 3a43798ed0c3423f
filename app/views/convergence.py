"""Convergence of a study: best so far, every trial as a point, the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import streamlit as st

from tuner.app.charts.convergence import convergence_figure, hypervolume_figure, pareto_figure
from tuner.app.charts.style import to_json
from tuner.app.data.columns import Floats
from tuner.app.data.convergence.best_part import BestPart, best_part
from tuner.app.data.convergence.forecast import MIN_TRIALS, Forecast, forecast, trials_left
from tuner.app.data.convergence.hypervolume import Hypervolume, hypervolume
from tuner.app.data.convergence.series import (
    Axis,
    BestSoFar,
    Scale,
    best_so_far,
    can_be_logarithmic,
    pareto_front,
    scale_of,
)
from tuner.app.data.digits import four_digits
from tuner.app.data.trials.columns import TrialColumns
from tuner.app.views import shell
from tuner.app.views.figure import show_figure
from tuner.app.views.shell import Shown
from tuner.queries.locate import StoredStudy
from tuner.queries.studies import Objective
from tuner.search.rungs.order.stored_trust import trust_sentence

_ALONE = "no study"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Options of the figure."""

    axis: Axis
    place: int
    log_x: bool
    log_y: bool
    #: Whether the vertical axis holds every value, and not only the best part.
    all_values: bool
    beside: StoredStudy | None
    is_forecast: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A figure as JSON, and the texts around it."""

    figure: str
    best: float | None
    ahead: Forecast | None
    notes: tuple[str, ...]


def page() -> None:
    st.title("Convergence")
    shell.page_of_a_study(_page)


def _page(shown: Shown) -> None:
    names = [each.name for each in shown.objectives]
    wish = _wish(shown, names)
    shell.live("convergence", lambda: _progress(shown, wish))
    if len(names) > 1:
        places = (0, 1)
        if len(names) > 2:
            others = st.multiselect(
                "Pareto front of",
                names,
                names[:2],
                max_selections=2,
                key="front",
                bind="query-params",
            )
            if len(others) < 2:
                return
            places = (names.index(others[0]), names.index(others[1]))
        shell.live("pareto", lambda: _front(shown, places))


def _wish(shown: Shown, names: list[str]) -> Wish:
    studies = shown.look.studies()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        axis = Axis(shell.choice("X axis", [each.value for each in Axis], key="against"))
        place = shell.objective_place(names)
        others = [name for name in studies if name != shown.study.name]
        beside = None
        if others:
            words = [_ALONE, *others]
            chosen = st.selectbox(
                "Compare with", words, width=220, key="beside", bind="query-params"
            )
            beside = studies.get(chosen)
        log_x = st.toggle("log x", key="log_x", bind="query-params")
        log_y = st.toggle("log y", key="log_y", bind="query-params")
        all_values = st.toggle(
            "all values",
            help="Else the Y axis shows the better half of the values.",
            key="all_values",
            bind="query-params",
        )
        is_forecast = st.toggle(
            "forecast",
            help="Where the study ends if trials continue like that.",
            key="forecast",
            bind="query-params",
        )
    return Wish(
        axis=axis,
        place=place,
        log_x=log_x,
        log_y=log_y,
        all_values=all_values,
        beside=beside,
        is_forecast=is_forecast,
    )


def _progress(shown: Shown, wish: Wish) -> None:
    trials = shown.look.trials(shown.study)
    if not trials.is_placed.any():
        st.info(_why_empty(trials))
        return
    drawn = draw(shown, wish, trials)
    if drawn is None:
        st.info("The tuner did not run these trials: how long they held devices is not known.")
        return
    with st.container(horizontal=True):
        name = shown.objectives[wish.place].name
        st.metric(
            f"best {shell.escaped(name)}",
            "none yet" if drawn.best is None else four_digits(drawn.best),
        )
        st.metric("trials finished", int(trials.is_finished.sum()))
        n_paused = int(trials.is_paused.sum())
        st.metric("trials running or waiting", int((~trials.is_finished).sum()) - n_paused)
        if n_paused:
            st.metric("trials paused", n_paused)
        if drawn.ahead is not None:
            st.metric("forecast for the end", four_digits(drawn.ahead.median))
    for note in drawn.notes:
        st.caption(note)
    if early_order := trust_sentence(shown.look.rung_trust(shown.study)):
        st.caption(early_order)
    show_figure(drawn.figure, key="convergence", on_trial=shell.open_trial)


def _why_empty(trials: TrialColumns) -> str:
    """Why no trial has a place on the figure."""
    if not len(trials):
        return "The study has no trial yet."
    n_finished = int(trials.is_finished.sum())
    if not n_finished:
        return f"No trial has ended yet; {len(trials)} run or wait."
    return f"{n_finished} of {len(trials)} trials have ended, none with a value to show."


def draw(shown: Shown, wish: Wish, trials: TrialColumns) -> Drawn | None:
    """None if the axis is unknown. Unchanged figures are not drawn again."""
    look, now = shown.look, shell.now()
    leases = look.leases(shown.study, now) if wish.axis is Axis.DEVICE_HOURS else None
    other = look.trials(wish.beside) if wish.beside else None
    n_more = 0
    if wish.is_forecast:
        progress = look.progress(shown.study, now)
        n_more = trials_left(
            int(trials.is_finished.sum()), progress.fraction, progress.budget.trials
        )

    def make() -> Drawn | None:
        scale = scale_of(trials, wish.axis, leases)
        if np.isnan(scale.values).all():
            return None
        beside = _beside(shown, wish, other, scale)
        return _drawn(shown, wish, trials, scale, beside, n_more)

    if leases is not None:  # Devices are held on: the axis moves though no trial has ended.
        return make()
    return look.kept.get((shown.study, wish, n_more), (trials, other), make)


def _beside(
    shown: Shown, wish: Wish, other: TrialColumns | None, scale: Scale
) -> tuple[str, BestSoFar] | None:
    """None if the other study has no objective of this name: it has no place on this axis."""
    if wish.beside is None or other is None:
        return None
    place = _place_beside(shown, wish)
    if place is None:
        return None
    leases = None
    if wish.axis is Axis.DEVICE_HOURS:
        leases = shown.look.leases(wish.beside, shell.now())
    theirs = scale_of(other, wish.axis, leases, unit_s=scale.unit_s)
    objective = shown.look.objectives(wish.beside)[place]
    best = best_so_far(other, theirs, place, is_maximized=objective.is_maximized)
    is_alike = objective.direction is shown.objectives[wish.place].direction
    direction = "" if is_alike else f" ({objective.direction.name.lower()})"
    return f"{wish.beside.name}{direction}", best


def _place_beside(shown: Shown, wish: Wish) -> int | None:
    """The index of the same objective in the other study; None if it has none."""
    if wish.beside is None:
        return None
    names = [each.name for each in shown.look.objectives(wish.beside)]
    name = shown.objectives[wish.place].name
    return names.index(name) if name in names else None


def _refusal(shown: Shown, wish: Wish) -> str:
    """Why the other study is not drawn; empty if it is."""
    if wish.beside is None or _place_beside(shown, wish) is not None:
        return ""
    theirs = ", ".join(each.name for each in shown.look.objectives(wish.beside))
    return (
        f"Study {shell.escaped(wish.beside.name)} is not drawn: it has no objective "
        f"{shell.escaped(shown.objectives[wish.place].name)}, only {shell.escaped(theirs)}."
    )


def _drawn(
    shown: Shown,
    wish: Wish,
    trials: TrialColumns,
    scale: Scale,
    beside: tuple[str, BestSoFar] | None,
    n_more: int,
) -> Drawn:
    objective = shown.objectives[wish.place]
    best = best_so_far(trials, scale, wish.place, is_maximized=objective.is_maximized)
    refusal = _refusal(shown, wish)
    notes = [refusal] if refusal else []
    log_y = wish.log_y
    if log_y and not can_be_logarithmic(trials.values[:, wish.place]):
        notes.append("Some values are 0 or below: they have no place on a logarithmic axis.")
        log_y = False
    told = None
    if wish.is_forecast:
        is_maximized = objective.is_maximized
        told = forecast(trials, wish.place, is_maximized=is_maximized, n_more=n_more)
        notes.append(_about(told, n_more))
    part = None
    if not wish.all_values:
        part = _part(
            trials, wish, best, beside, told, is_maximized=objective.is_maximized, log_y=log_y
        )
    if part is not None and part.n_outside:
        notes.append(
            f"The Y axis shows the best values; {part.n_outside} trials are outside of it. "
            "*all values* shows them."
        )
    figure = convergence_figure(
        trials,
        scale,
        best,
        objective,
        place=wish.place,
        revision=shown.revision,
        # Trial 0 alone would be left out, which is no reason to refuse.
        log_x=wish.log_x and bool((scale.values[np.isfinite(scale.values)] > 0).any()),
        log_y=log_y,
        other=beside,
        ahead=(_end_of(scale.values, trials, n_more), told) if told else None,
        part=part,
    )
    return Drawn(
        figure=to_json(figure),
        best=float(best.y[-1]) if len(best.y) else None,
        ahead=told,
        notes=tuple(notes),
    )


def _part(
    trials: TrialColumns,
    wish: Wish,
    best: BestSoFar,
    beside: tuple[str, BestSoFar] | None,
    ahead: Forecast | None,
    *,
    is_maximized: bool,
    log_y: bool,
) -> BestPart | None:
    values = trials.shown_values[trials.is_placed, wish.place]
    theirs = beside[1].y if beside else np.empty(0)
    # The other study's end and the forecast are on the axis, too.
    ends = [*theirs[-1:], *([ahead.cautious, ahead.hopeful] if ahead else [])]
    if log_y:
        ends = [each for each in ends if each > 0]
    stairs = np.concatenate([ends, best.y[len(best.y) // 2 :]])
    return best_part(
        np.concatenate([values, ends]), stairs, is_maximized=is_maximized, is_log=log_y
    )


def _about(told: Forecast | None, n_more: int) -> str:
    if told is not None:
        span = f"likely {four_digits(told.cautious)} to {four_digits(told.hopeful)}"
        return (
            f"Forecast: {four_digits(told.median)} ({span}) after {told.n_more} more trials like "
            "those of the later half. A sampler that still learns does better."
        )
    if not n_more:
        return "No forecast: the budget is open, or spent."
    return f"No forecast: it takes {MIN_TRIALS} completed trials of different values."


def _end_of(x: Floats, trials: TrialColumns, n_more: int) -> float:
    """End of the axis after more trials at the rate so far."""
    largest = float(np.nanmax(np.where(trials.is_placed, x, np.nan)))
    return largest * (1 + n_more / max(1, int(trials.is_finished.sum())))


def _front(shown: Shown, places: tuple[int, int]) -> None:
    trials = shown.look.trials(shown.study)
    if not trials.is_candidate.any():
        st.info("No trial has completed with a value for each objective yet.")
        return
    pair = (shown.objectives[places[0]], shown.objectives[places[1]])
    is_maximized = [each.is_maximized for each in shown.objectives]

    def make() -> tuple[int, str, str, str]:
        front = pareto_front(trials, is_maximized)
        revision = f"{shown.revision} {places}"
        figure = to_json(pareto_figure(trials, front, pair, places, revision=revision))
        volume = hypervolume(trials, is_maximized)
        assert volume is not None, "there are candidates"
        grown = hypervolume_figure(volume, revision=revision)
        return int(front.sum()), figure, to_json(grown), reference_text(volume, shown.objectives)

    n, figure, grown, reference = shown.look.kept.get(
        ("front", shown.study, places), (trials,), make
    )
    st.subheader(f"Pareto front: {n} trial{'s' * (n != 1)}")
    if len(shown.objectives) > 2:
        st.caption(
            f"Of all {len(shown.objectives)} objectives. The line joins those that are also the "
            "best of these two."
        )
    show_figure(figure, key="pareto", on_trial=shell.open_trial)
    st.subheader("Hypervolume")
    st.caption(reference)
    show_figure(grown, key="hypervolume")


def reference_text(volume: Hypervolume, objectives: Sequence[Objective]) -> str:
    """The reference of hypervolume shares."""
    names = [shell.escaped(each.name) for each in objectives]
    worst = ", ".join(f"{n} {four_digits(v)}" for n, v in zip(names, volume.reference, strict=True))
    best = ", ".join(f"{n} {four_digits(v)}" for n, v in zip(names, volume.ideal, strict=True))
    return (
        "Share that the Pareto front dominates of the box between the reference point, the worst "
        f"completed values ({worst}), and the best ones ({best})."
    )
