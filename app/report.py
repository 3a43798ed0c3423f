"""`tuner report`: the main figures of a study in one file that needs no server."""

from __future__ import annotations

import html
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from tuner.app.charts.convergence import convergence_figure, hypervolume_figure, pareto_figure
from tuner.app.charts.lineage import lineage_figure
from tuner.app.charts.many_curves import CurveAxes, many_curves_figure
from tuner.app.charts.parameters import MAX_TRIALS, Kind, importance_figure, parameter_figure
from tuner.app.charts.style import Figure, to_json
from tuner.app.data.convergence.best_part import best_part
from tuner.app.data.convergence.hypervolume import hypervolume
from tuner.app.data.convergence.series import Axis, best_so_far, pareto_front, scale_of
from tuner.app.data.digits import four_digits
from tuner.app.data.page_data import Look
from tuner.app.data.trials.columns import TrialColumns
from tuner.app.data.trials.curves import pick
from tuner.app.data.trials.optuna_sample import (
    MAX_FOR_IMPORTANCE,
    importances,
    pick_rows,
    shared_names,
    spread_rows,
    study_of,
)
from tuner.app.library import figure_script, library_file
from tuner.queries.locate import StoredStudy
from tuner.queries.results.format_names import Format
from tuner.queries.results.formats import render
from tuner.queries.studies import Objective
from tuner.terminal.studies import study_trials_text
from tuner.terminal.wording import duration

_N_BEST = 5
_STYLE = """
:root { color-scheme: light dark; --st-text-color: #262730; --st-background-color: #ffffff;
  --st-border-color: #d8dadf; --st-font: system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { :root { --st-text-color: #fafafa;
  --st-background-color: #0e1117; --st-border-color: #3a3d46; } }
body { font-family: var(--st-font); color: var(--st-text-color); margin: 0 auto; max-width: 1100px;
  padding: 1rem; background: var(--st-background-color); }
td { padding: 0.1rem 1rem 0.1rem 0; } pre { overflow-x: auto; }
"""
_START = """
for (const data of document.querySelectorAll('script[type="application/json"]')) {
  const told = { figure: data.textContent, name: data.id };
  mount({ data: told, parentElement: data.parentElement, setTriggerValue() {} });
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    look: Look
    study: StoredStudy
    objectives: tuple[Objective, ...]
    trials: TrialColumns


def write_report(url: str, study: StoredStudy, output: Path, now: datetime) -> None:
    """Writes a report.

    Args:
        url: URL of the database.
        study: The study.
        output: The file, replaced atomically.
        now: The current time.

    Raises:
        StoreError: If the database can't be read.
        OSError: If the file can't be written.
    """
    look = Look(url)
    try:
        text = _page(look, study, now)
    finally:
        look.close()
    partial = output.with_name(f".{output.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, output)


def study_figures(url: str, study: StoredStudy) -> dict[str, Figure]:
    """The figures of the report, by title.

    Args:
        url: URL of the database.
        study: The study.

    Raises:
        StoreError: If the database can't be read.
    """
    look = Look(url)
    try:
        subject = _Subject(
            look=look, study=study, objectives=look.objectives(study), trials=look.trials(study)
        )
        return dict(_figures(subject))
    finally:
        look.close()


def _page(look: Look, study: StoredStudy, now: datetime) -> str:
    subject = _Subject(
        look=look,
        study=study,
        objectives=look.objectives(study),
        trials=look.trials(study),
    )
    title = html.escape(f"Study {study.name}")
    parts = [
        f"<section><h2>{html.escape(name)}</h2>{_embedded(name, figure)}</section>"
        for name, figure in _figures(subject)
    ]
    best = look.best(study, n=_N_BEST, now=now)
    if best:
        text = html.escape(render(best, Format.YAML))
        parts.append(f"<section><h2>Best configurations</h2><pre>{text}</pre></section>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style>"
        f"<script>{library_file().read_text()}</script></head><body><h1>{title}</h1>"
        f"{_facts(subject, now)}{''.join(parts)}"
        f'<script type="module">{figure_script()}{_START}</script></body></html>\n'
    )


def _embedded(name: str, figure: Figure) -> str:
    text = to_json(figure).replace("<", "\\u003c")
    return f'<script type="application/json" id="{html.escape(name)}">{text}</script>'


def _facts(subject: _Subject, now: datetime) -> str:
    progress = subject.look.progress(subject.study, now)
    rows = {
        "state": f"{progress.standing.value}. {progress.reason}",
        "trials": study_trials_text(progress.study, progress.budget.trials),
        "active time": duration(progress.spent.time_s),
        "device-hours": four_digits(progress.spent.device_s / 3600),
        "database": subject.look.shown_url,
        "written": f"{now:%Y-%m-%d %H:%M:%S} UTC",
    }
    cells = (
        f"<tr><td>{html.escape(key)}</td><td>{html.escape(value)}</td></tr>"
        for key, value in rows.items()
    )
    return f"<table>{''.join(cells)}</table>"


def _figures(subject: _Subject) -> Iterator[tuple[str, Figure]]:
    trials = subject.trials
    if trials.is_placed.any():
        for place in range(len(subject.objectives)):
            yield from _convergence(subject, place)
    if len(subject.objectives) > 1 and trials.is_candidate.any():
        yield from _several(subject)
    yield from _curves(subject)
    if int(trials.is_candidate.sum()) >= 2:
        for place in range(len(subject.objectives)):
            yield from _parameters(subject, place)


def _convergence(subject: _Subject, place: int) -> Iterator[tuple[str, Figure]]:
    trials, objective = subject.trials, subject.objectives[place]
    for axis in (Axis.TRIALS, Axis.TIME):
        scale = scale_of(trials, axis, None)
        best = best_so_far(trials, scale, place, is_maximized=objective.is_maximized)
        values = trials.shown_values[trials.is_placed, place]
        part = best_part(
            values, best.y[len(best.y) // 2 :], is_maximized=objective.is_maximized, is_log=False
        )
        figure = convergence_figure(
            trials, scale, best, objective, place=place, revision="report", part=part
        )
        if part:
            text = f"{part.n_outside} values are outside of the picture: zoom out"
            figure.add_annotation(
                text=text, x=0, y=1, xref="paper", yref="paper", yanchor="bottom", showarrow=False
            )
        yield f"Convergence of {objective.name} against {axis.value}", figure


def _several(subject: _Subject) -> Iterator[tuple[str, Figure]]:
    is_maximized = [each.is_maximized for each in subject.objectives]
    front = pareto_front(subject.trials, is_maximized)
    pair = (subject.objectives[0], subject.objectives[1])
    yield "Pareto front", pareto_figure(subject.trials, front, pair, (0, 1), revision="report")
    volume = hypervolume(subject.trials, is_maximized)
    if volume is not None:
        yield "Hypervolume", hypervolume_figure(volume, revision="report")


def _curves(subject: _Subject) -> Iterator[tuple[str, Figure]]:
    first = subject.objectives[0]
    rows = pick(subject.trials, is_maximized=first.is_maximized)
    some = subject.trials.where(rows)
    curves = subject.look.curves(subject.study, some)
    if not curves:
        return
    name = first.name if len(subject.objectives) == 1 else "reported value"
    axes = CurveAxes(name=f"{name} (as reported)", log_x=False, log_y=False)
    last_step = int(max(np.max(curve.steps) for curve in curves.values()))
    rungs = subject.look.rungs(subject.study, last_step)
    figure = many_curves_figure(curves, some, axes, rungs=rungs, picked=None, revision="report")
    yield f"Learning curves of {len(curves)} trials of {len(subject.trials)}", figure
    lineage = subject.look.lineage(subject.study)
    if lineage is not None:
        figure = lineage_figure(curves, lineage, axes, picked=None, revision="report")
        yield "Population: which trial continued from which checkpoint", figure


def _parameters(subject: _Subject, place: int) -> Iterator[tuple[str, Figure]]:
    look, trials, objective = subject.look, subject.trials, subject.objectives[place]
    params = look.params(subject.study, trials)
    ranges = look.distributions(subject.study)
    spread = spread_rows(trials, MAX_FOR_IMPORTANCE)
    found = importances(study_of(trials, spread, objective, place, params, ranges))
    if found:
        figure = importance_figure(found, revision="report")
        yield f"Importance for {objective.name}", figure
    kind = Kind.PARALLEL
    rows = pick_rows(trials, place, is_maximized=objective.is_maximized, most=MAX_TRIALS[kind])
    study = study_of(trials, rows, objective, place, params, ranges)
    names = shared_names(study)
    if names:
        title = f"{objective.name} ({objective.direction.name.lower()})"
        figure = parameter_figure(kind, study, names, title, revision="report")
        yield (
            f"Parallel coordinates of {objective.name}, {len(rows)} of {len(trials)} trials",
            figure,
        )
