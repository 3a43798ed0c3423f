"""Two to ten trials, or two to ten studies, side by side; the address restores which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import streamlit as st

from tuner.app.charts.compare import lines_figure, studies_figure
from tuner.app.charts.style import Titles
from tuner.app.data.compare.studies import Band, band_of, seed_groups
from tuner.app.data.compare.trials import (
    MAX_COMPARED,
    MIN_COMPARED,
    compared,
    curves_by_name,
    numbers_in,
    utilization_of,
)
from tuner.app.data.convergence.series import Axis, BestSoFar, Scale, best_so_far, scale_of
from tuner.app.data.overview import ago
from tuner.app.data.trials.columns import TrialColumns
from tuner.app.data.trials.one_trial import OneTrial
from tuner.app.data.trials.table import Cell, table_of
from tuner.app.views import shell
from tuner.app.views.figure import show_figure
from tuner.app.views.shell import Drawn, Shown
from tuner.queries.locate import StoredStudy
from tuner.queries.studies import Objective

_TRIALS, _STUDIES = "trials", "studies"
_ROWS_PX = 300
_MAX_ROWS, _MANY_ROWS_PX = 40, 700


def page() -> None:
    st.title("Compare")
    shell.page_of_a_study(_page)


def _page(shown: Shown) -> None:
    # A link that names studies needs no other word.
    is_of_studies = _STUDIES in st.query_params and _TRIALS not in st.query_params
    what = st.segmented_control(
        "Compare",
        [_TRIALS, _STUDIES],
        default=_STUDIES if is_of_studies else _TRIALS,
        required=True,
        key="compare",
        bind="query-params",
    )
    if what == _TRIALS:
        _trials(shown)
    else:
        _studies(shown)


def _trials(shown: Shown) -> None:
    trials = shown.look.trials(shown.study)
    if len(trials) < MIN_COMPARED:
        st.info("The study has fewer than two trials.")
        return
    wanted = numbers_in(st.query_params.get(_TRIALS, ""))
    known = trials.numbers.tolist()
    missing = sorted({*wanted}.difference(known), key=wanted.index)
    if missing:
        st.warning(
            f"Study {shell.escaped(shown.study.name)} has no trial {', '.join(map(str, missing))}."
        )
    at = np.flatnonzero(np.isin(trials.numbers, wanted)).tolist()
    rows = _ticked(_table(shown, trials), at, f"{_TRIALS} {shown.study.id}")
    numbers = [known[row] for row in rows[:MAX_COMPARED]]
    _keep(_TRIALS, ",".join(map(str, numbers)), instead_of=_STUDIES)
    if not _are_enough(len(rows), "trials"):
        return
    shell.live("compared trials", lambda: _side_by_side(shown, numbers))


def _table(shown: Shown, trials: TrialColumns) -> Drawn:
    """In the order of their numbers: a trial that starts meanwhile moves no row."""
    params = shown.look.params(shown.study, trials)

    def make() -> Drawn:
        return shell.drawn_table(table_of(trials, shown.objectives, params, shell.now()))

    if not trials.is_finished.all():  # Durations of trials that run change with the time alone.
        return make()
    return shown.look.kept.get(("trials to compare", shown.study), (trials, params), make)


def _ticked(table: Drawn, at: Sequence[int], key: str) -> list[int]:
    """The rows of a table that are ticked: at first those that the address names."""
    event = st.dataframe(
        table.cells,
        hide_index=True,
        placeholder="",
        key=f"ticked {key}",
        on_select="rerun",
        selection_mode="multi-row",
        selection_default={"selection": {"rows": list(at)}},
        height=_ROWS_PX if len(table.cells) > 8 else "auto",
        column_config=table.formats,
    )
    rows: list[int] = sorted(event["selection"]["rows"])
    return [row for row in rows if row < len(table.cells)]


def _keep(key: str, what: str | list[str], *, instead_of: str) -> None:
    """In the address."""
    st.query_params.pop(instead_of, None)
    if what:
        st.query_params[key] = what
    else:
        st.query_params.pop(key, None)


def _are_enough(n: int, what: str) -> bool:
    if n < MIN_COMPARED:
        st.info(f"Select {MIN_COMPARED} to {MAX_COMPARED} {what} at their left.")
        return False
    if n > MAX_COMPARED:
        st.caption(f"Shown: the first {MAX_COMPARED} of {n} selected {what}.")
    return True


def _side_by_side(shown: Shown, numbers: Sequence[int]) -> None:
    now = shell.now()
    found = [shown.look.trial(shown.study, number, now) for number in numbers]
    trials = [each for each in found if each is not None]
    table = compared(trials)
    # All rows of many parameters would put the curves out of sight.
    height: int | Literal["content"] = "content" if len(table[""]) <= _MAX_ROWS else _MANY_ROWS_PX
    st.dataframe(table, hide_index=True, placeholder="", height=height, key="side by side")
    for name, lines in curves_by_name(trials).items():
        st.subheader(shell.escaped(name))
        titles = Titles(x="Step (as reported)", y=name)
        revision = f"{shown.revision} {numbers} {name}"
        show_figure(lines_figure(lines, titles, revision=revision), key=f"compared {name}")
    _utilization(shown, trials)


def _utilization(shown: Shown, trials: Sequence[OneTrial]) -> None:
    lines = {}
    for each in trials:
        use = shown.look.trial_use(shown.study, each.trial.number, shell.now())
        curve = None if use is None else utilization_of(use)
        if curve is not None:
            lines[f"trial {each.trial.number}"] = curve
    if not lines:
        return
    st.subheader("Utilization")
    titles = Titles(x="Time in attempts (s)", y="Utilization of its devices, mean (%)")
    figure = lines_figure(lines, titles, revision=f"{shown.revision} {list(lines)}")
    show_figure(figure, key="compared utilization")


def _studies(shown: Shown) -> None:
    look, now = shown.look, shell.now()
    # The oldest first: a study that starts meanwhile moves no row.
    lines = look.overview(now)[::-1]
    table: dict[str, list[Cell]] = {
        "study": [line.study.name for line in lines],
        "objectives": [", ".join(map(str, line.study.objectives)) for line in lines],
        "state": [line.state for line in lines],
        "finished trials": [line.study.n_finished for line in lines],
        "best value": [line.best for line in lines],
        "last activity": [ago(line.study.active_at, now) for line in lines],
    }
    wanted = st.query_params.get_all(_STUDIES)
    at = [row for row, name in enumerate(table["study"]) if name in wanted]
    rows = _ticked(shell.drawn_table(table), at, _STUDIES)
    names = [str(table["study"][row]) for row in rows[:MAX_COMPARED]]
    _keep(_STUDIES, names, instead_of=_TRIALS)
    if not _are_enough(len(rows), "studies"):
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        axis = Axis(shell.choice("X axis", [each.value for each in Axis], key="compare_x"))
        is_banded = st.toggle(
            "band over seeds",
            value=True,
            help="Studies whose names differ by a number at the end are runs of one study: "
            "their median, in a band from the lowest to the highest.",
            key="band",
            bind="query-params",
        )
        log_y = st.toggle("log y", key="compare_log_y", bind="query-params")
    shell.live(
        "compared studies",
        lambda: _best_of_each(shown, names, axis, is_banded=is_banded, log_y=log_y),
    )


def _best_of_each(
    shown: Shown, names: Sequence[str], axis: Axis, *, is_banded: bool, log_y: bool
) -> None:
    look, known = shown.look, shown.look.studies()
    studies = [known[name] for name in names if name in known]
    first = look.objectives(studies[0])[0]
    able = [each for each in studies if first in look.objectives(each)]
    refused = [each.name for each in studies if each not in able]
    if refused:
        names_of_refused = shell.escaped(", ".join(refused))
        what = f"{shell.escaped(first.name)} ({first.direction.name.lower()})"
        st.caption(f"Not drawn, without the objective {what}: {names_of_refused}.")
    # One unit of time for all: that of the longest.
    longest = max((scale_of(look.trials(each), axis, None) for each in able), key=_unit_s)
    lines = {each.name: _best(shown, each, axis, first, longest.unit_s) for each in able}
    lines = {name: line for name, line in lines.items() if len(line.x)}
    if not lines:
        st.info(f"No trial of these studies has a value against {axis.value}.")
        return
    grouped: dict[str, BestSoFar | Band] = _grouped(lines) if is_banded else dict(lines)
    titles = Titles(x=longest.title, y=f"{first}, best so far", log_y=log_y)
    revision = f"{names} {axis} {is_banded}"
    show_figure(studies_figure(grouped, titles, revision=revision), key="compared studies figure")


def _unit_s(scale: Scale) -> float:
    return scale.unit_s


def _best(
    shown: Shown, study: StoredStudy, axis: Axis, objective: Objective, unit_s: float
) -> BestSoFar:
    look = shown.look
    trials = look.trials(study)
    leases = look.leases(study, shell.now()) if axis is Axis.DEVICE_HOURS else None
    scale = scale_of(trials, axis, leases, unit_s=unit_s if axis is Axis.TIME else None)
    place = look.objectives(study).index(objective)
    return best_so_far(trials, scale, place, is_maximized=objective.is_maximized)


def _grouped(lines: dict[str, BestSoFar]) -> dict[str, BestSoFar | Band]:
    """Runs that differ only by a seed as one band, if they overlap."""
    found: dict[str, BestSoFar | Band] = {}
    for stem, names in seed_groups(list(lines)).items():
        band = band_of({name: lines[name] for name in names}) if len(names) > 1 else None
        if band is not None:
            found[stem] = band
        else:
            found |= {name: lines[name] for name in names}
    return found
