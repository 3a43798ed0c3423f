"""How the objective depends on the parameters."""

from __future__ import annotations

import numpy as np
import optuna
import streamlit as st

from tuner.app.charts.parameters import (
    MAX_BARS,
    MAX_DRAWN,
    MAX_PAIRED,
    MAX_TRIALS,
    MIN_FOR_SURFACE,
    Kind,
    importance_figure,
    parameter_figure,
)
from tuner.app.charts.style import to_json
from tuner.app.data.columns import Numbers
from tuner.app.data.outcome_words import COMPLETED, PAUSED, PRUNED
from tuner.app.data.trials.columns import TrialColumns
from tuner.app.data.trials.optuna_sample import (
    MAX_FOR_IMPORTANCE,
    dropped_params,
    importances,
    pick_rows,
    shared_names,
    spread_rows,
    study_of,
)
from tuner.app.views import shell
from tuner.app.views.figure import show_figure
from tuner.app.views.shell import Shown

_PAIRED = (Kind.CONTOUR, Kind.RANK)
_MIN_TRIALS = 2


def page() -> None:
    st.title("Parameters")
    shell.page_of_a_study(_page)


def _page(shown: Shown) -> None:
    names = [each.name for each in shown.objectives]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        kind = Kind(shell.choice("Figure", [each.value for each in Kind], key="figure"))
        place = shell.objective_place(names)
        with_pruned = st.toggle(
            "with pruned trials, at their last value", key="with_pruned", bind="query-params"
        )
    shell.live("parameters", lambda: _figures(shown, kind, place, with_pruned=with_pruned))


def _figures(shown: Shown, kind: Kind, place: int, *, with_pruned: bool) -> None:
    trials = shown.look.trials(shown.study)
    n_able = int(trials.is_sample(with_pruned=with_pruned).sum())
    st.caption(about_sample(trials, with_pruned=with_pruned))
    if n_able < _MIN_TRIALS:
        st.info(f"At least {_MIN_TRIALS} such trials are needed.")
        return
    found = _importances(shown, trials, place, with_pruned=with_pruned)
    most = MAX_TRIALS[kind]
    is_maximized = shown.objectives[place].is_maximized
    rows = pick_rows(trials, place, is_maximized=is_maximized, most=most, with_pruned=with_pruned)
    study = _study(shown, trials, place, (most, with_pruned), rows)
    names = [name for name in found if name in shared_names(study)] or shared_names(study)
    dropped = dropped_params(study, list(shown.look.distributions(shown.study)))
    if dropped:
        reasons = "; ".join(f"{shell.escaped(name)} ({reason})" for name, reason in dropped.items())
        st.caption(f"Not shown: {reasons}.")
    if not names:
        st.info("No parameter that all these trials have was given different values.")
        return
    if found:
        figure = importance_figure(found, revision=shown.revision)
        st.subheader("Importance")
        if len(found) > MAX_BARS:
            st.caption(f"The {MAX_BARS} most important of {len(found)} parameters.")
        if n_able > MAX_FOR_IMPORTANCE:
            st.caption(f"Computed from {MAX_FOR_IMPORTANCE} of these {n_able} trials.")
        show_figure(figure, key="importance")
    if kind in _PAIRED:
        names = _pair(names)
        if len(names) < 2:
            st.info("Two parameters at least.")
            return
    st.subheader(kind.value.capitalize())
    if n_able > most:
        st.caption(f"Drawn: {most} of these {n_able} trials, the best and the newest.")
    if kind in MAX_DRAWN and len(names) > MAX_DRAWN[kind]:
        st.caption(f"Drawn: the {MAX_DRAWN[kind]} most important of {len(names)} parameters.")
        names = names[: MAX_DRAWN[kind]]
    if kind is Kind.CONTOUR and n_able < MIN_FOR_SURFACE:
        st.caption(f"Points alone: a surface is drawn from {MIN_FOR_SURFACE} trials on.")
    objective = shown.objectives[place]

    def make() -> str:
        title = f"{objective.name} ({objective.direction.name.lower()})"
        return to_json(parameter_figure(kind, study, names, title, revision=shown.revision))

    key = ("parameters", shown.study, kind, place, tuple(names))
    figure_json = shown.look.kept.get(key, (study,), make)
    show_figure(figure_json, key="parameters", on_trial=shell.open_trial)


def about_sample(trials: TrialColumns, *, with_pruned: bool) -> str:
    """The number of trials in the figures, and why others of these outcomes are left out.

    Args:
        trials: All of the study.
        with_pruned: Whether also pruned and paused trials are drawn.
    """
    sample = trials.is_sample(with_pruned=with_pruned)
    words = (COMPLETED, PRUNED, PAUSED) if with_pruned else (COMPLETED,)
    left = np.isin(trials.words, words) & ~sample
    n_infeasible = int((left & trials.is_infeasible).sum())
    n_lost = int(left.sum()) - n_infeasible
    reasons = [f"{n_infeasible} infeasible"] if n_infeasible else []
    reasons += [f"{n_lost} without a finite value"] if n_lost else []
    without = f", except {' and '.join(reasons)}" if reasons else ""
    what = "completed, pruned or paused" if with_pruned else "completed"
    return f"{int(sample.sum())} of {len(trials)} trials: those that are {what}{without}."


def _pair(names: list[str]) -> list[str]:
    if len(names) <= 2:
        return names
    chosen: list[str] = st.multiselect(
        f"Parameters (2 to {MAX_PAIRED})",
        names,
        names[:2],
        max_selections=MAX_PAIRED,
        key="parameter",
        bind="query-params",
    )
    return chosen


def _study(
    shown: Shown, trials: TrialColumns, place: int, sample: tuple[int, bool], rows: Numbers
) -> optuna.Study:
    look, objective = shown.look, shown.objectives[place]

    def make() -> optuna.Study:
        params = look.params(shown.study, trials)
        return study_of(trials, rows, objective, place, params, look.distributions(shown.study))

    return look.kept.get(("study", shown.study, place, sample), (trials,), make)


def _importances(
    shown: Shown, trials: TrialColumns, place: int, *, with_pruned: bool
) -> dict[str, float]:
    def make() -> dict[str, float]:
        rows = spread_rows(trials, MAX_FOR_IMPORTANCE, with_pruned=with_pruned)
        # Another place than that of a figure of as many trials, which takes other rows.
        return importances(_study(shown, trials, place, (-MAX_FOR_IMPORTANCE, with_pruned), rows))

    key = ("importances", shown.study, place, with_pruned)
    return shown.look.kept.get(key, (trials,), make)
