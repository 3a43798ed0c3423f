"""In a notebook: a table and a curve that replace themselves, below the cell of the call."""

from __future__ import annotations

import html
import importlib
import math
from collections import deque
from collections.abc import Sequence
from typing import Any

from tuner.api.messages import (
    Finished,
    Line,
    Message,
    Progress,
    Refused,
    RunningRow,
    TrialEnded,
)
from tuner.terminal import wording

#: Maximum lines of dispatcher output: notes, warnings, failures.
_MAX_LINES = 12
_MAX_POINTS = 2000
_WIDTH, _HEIGHT, _MARGIN = 560, 130, 8
_GREEN, _GREY = "#2e9e5b", "#8a8f98"


class NotebookShow:
    """Shows a study in place, in a notebook.

    Args:
        study: Its name.
        objective: Name of the first objective, whose values are plotted.
        is_maximized: Whether it is maximized.
    """

    def __init__(self, study: str, objective: str, *, is_maximized: bool) -> None:
        self._study = study
        self._objective = objective
        self._is_maximized = is_maximized
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._values: deque[tuple[int, float]] = deque(maxlen=_MAX_POINTS)
        self._progress: Progress | None = None
        self._end = ""
        display: Any = importlib.import_module("IPython.display")
        self._handle = display.display(self._bundle(), raw=True, display_id=True)

    def take(self, message: Message) -> None:
        match message:
            case Line():
                self._lines.append(message.text)
            case TrialEnded():
                # An infinite value has no place in the picture.
                if math.isfinite(message.values.get(self._objective, math.nan)):
                    self._values.append((message.number, message.values[self._objective]))
                return
            case Progress():
                self._progress = message
            case Finished():
                self._end = message.summary
            case Refused():
                self._end = message.message
        self._handle.update(self._bundle(), raw=True)

    def _bundle(self) -> dict[str, str]:
        """The same for front ends that show HTML and for those that do not."""
        return {"text/html": self._html(), "text/plain": self._plain()}

    def _plain(self) -> str:
        counts = _counts(self._progress) if self._progress else "starting"
        return "\n".join([f"study {self._study}: {counts}", *self._lines, self._end]).rstrip()

    def _html(self) -> str:
        parts = [f"<b>study {html.escape(self._study)}</b>"]
        if self._progress is None:
            parts.append("" if self._end else "starting ...")
        else:
            parts += [_bar(self._progress), html.escape(_counts(self._progress))]
            parts += [_curve(self._values, self._objective, is_maximized=self._is_maximized)]
            if not self._end:
                parts += [_best(self._progress), _running(self._progress.running)]
        parts += [_text(line) for line in self._lines]
        if self._end:
            parts.append(_text(self._end))
        return f"<div>{''.join(f'<div>{part}</div>' for part in parts if part)}</div>"


def _counts(progress: Progress) -> str:
    total = f" of {progress.n_trials}" if progress.n_trials else ""
    left = ""
    if progress.left_s is not None:
        left = f", about {wording.duration(progress.left_s)} left"
    return (
        f"{progress.n_begun}{total} trials: {progress.n_completed} completed, {progress.n_pruned} "
        f"pruned, {progress.n_failed} failed; {wording.duration(progress.elapsed_s)}{left}"
        + (" (stopping)" if progress.is_stopping else "")
    )


def _bar(progress: Progress) -> str:
    if not progress.n_trials:
        return ""
    n_ended = progress.n_completed + progress.n_pruned + progress.n_failed
    share = min(1.0, n_ended / progress.n_trials)
    return (
        f'<div style="width:{_WIDTH}px;max-width:100%;background:{_GREY}40;height:6px">'
        f'<div style="width:{share:.1%};background:{_GREEN};height:6px"></div></div>'
    )


def _best(progress: Progress) -> str:
    if progress.best_number is None:
        return ""
    text = (
        f"best: {wording.values_text(progress.best_values)} (trial {progress.best_number}: "
        f"{wording.settings(progress.best_params)})"
    )
    return html.escape(text)


def _running(rows: Sequence[RunningRow]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{name}</th>" for name in ("device", "trial", "for", "step", "value", ""))
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cells(row: RunningRow) -> str:
    cells = (
        row.devices,
        str(row.number),
        wording.duration(row.elapsed_s),
        "" if row.step is None else str(row.step),
        " ".join(f"{value:.4g}" for value in row.values.values()),
        wording.settings(row.params),
    )
    return "".join(f'<td style="text-align:left">{html.escape(cell)}</td>' for cell in cells)


def _text(text: str) -> str:
    return f'<pre style="margin:0;white-space:pre-wrap">{html.escape(text)}</pre>'


def _curve(values: Sequence[tuple[int, float]], name: str, *, is_maximized: bool) -> str:
    """A point for each trial that has completed, and the best so far as a line."""
    if not values:
        return ""
    ordered = sorted(values)
    scale = _Scale(ordered)
    better = max if is_maximized else min
    line, points, best = "", "", ordered[0][1]
    for number, value in ordered:
        before, best = best, better(best, value)
        x = scale.x(number)
        line += f"{x:.1f},{scale.y(before):.1f} {x:.1f},{scale.y(best):.1f} "
        points += f'<circle cx="{x:.1f}" cy="{scale.y(value):.1f}" r="2.5" fill="{_GREY}"/>'
    title = html.escape(f"{name}: {best:.6g}")
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'style="max-width:100%"><title>{title}</title>{points}<polyline points="{line}" '
        f'fill="none" stroke="{_GREEN}" stroke-width="2"/></svg>'
    )


class _Scale:
    """From numbers and values of trials to places in the picture."""

    def __init__(self, ordered: Sequence[tuple[int, float]]) -> None:
        self._last = max(1, ordered[-1][0])
        values = [value for _, value in ordered]
        self._low, self._high = min(values), max(values)

    def x(self, number: int) -> float:
        return _MARGIN + (_WIDTH - 2 * _MARGIN) * number / self._last

    def y(self, value: float) -> float:
        is_flat = self._high == self._low
        share = 0.5 if is_flat else (value - self._low) / (self._high - self._low)
        return _HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * share
