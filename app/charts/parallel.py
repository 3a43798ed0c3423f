"""Parallel coordinates: an axis for each parameter, a line for each trial, the best in front.

Plotly's `parcoords` axes are linear and numeric. Logarithmic scales and categories are drawn at
transformed positions, with the true values as tick labels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import optuna
import plotly.graph_objects as go
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.study import StudyDirection

from tuner.app.charts.palette import TO_THE_BEST
from tuner.app.charts.style import bar_above, dress, literal, shortened
from tuner.app.data.columns import Floats
from tuner.app.data.digits import four_digits
from tuner.search_spaces import ParamValue

#: Maximum number of axes; the most important parameters come first.
MAX_AXES = 10
#: Names of more axes than this would run over each other.
_FEW_AXES = 6
_HEIGHT_PX = 480
_MAX_LABEL = 24
#: Number of positions for the ends of a range on a logarithmic axis.
_N_STEPS = 101
_MAX_LABEL = 28
#: Few different numbers are all labelled.
_MAX_TICKS = 8


def parallel_figure(
    study: optuna.Study, names: Sequence[str], value_name: str, *, revision: str
) -> go.Figure:
    """Parallel coordinates.

    Args:
        study: With one objective.
        names: Parameters that every trial has, in the order of their axes.
        value_name: Title of the objective's axis.
        revision: While it is unchanged, a refresh keeps ranges and the order of axes.
    """
    trials = study.get_trials(deepcopy=False)
    values = np.array([trial.values[0] for trial in trials])
    sign = 1.0 if study.direction is StudyDirection.MAXIMIZE else -1.0
    # Plotly draws in the order of colours; rows in the same order serve screen readers.
    order = np.argsort(sign * values, kind="stable")
    some = [trials[at] for at in order]
    drawn = names[:MAX_AXES]
    value_label, *labels = _labels([value_name, *drawn])
    axes = [_axis(value_label, values[order])]
    for name, label in zip(drawn, labels, strict=True):
        column = [trial.params[name] for trial in some]
        axes.append(_param_axis(label, column, some[-1].distributions[name]))
    is_few = len(axes) <= _FEW_AXES
    figure = go.Figure(
        go.Parcoords(
            dimensions=axes,
            customdata=[trial.number for trial in some],
            meta={"parallel": [_described(trial, value_name, names) for trial in some]},
            line=_line(values[order], bar_y=1.12 if is_few else 1.34),
            unselected={"line": {"color": "#8291a0", "opacity": 0.12}},
            labelangle=-12 if is_few else -35,
            labelside="top",
        )
    )
    dress(figure, revision=revision, height_px=_HEIGHT_PX if is_few else _HEIGHT_PX + 80)
    figure.update_layout(
        margin={"t": 110 if is_few else 190, "l": 60, "r": 60, "b": 24},
        meta={"own_background": True},
    )
    return figure


def _line(values: Floats, *, bar_y: float) -> dict[str, object]:
    """Colours by rank, so that an outlier does not reduce the contrast of others.

    Args:
        values: The worst first.
        bar_y: Position of the colour bar, in heights of the axes.
    """
    n = len(values)
    ranks = np.linspace(0.0, 1.0, n) if n > 1 else np.ones(1)
    places = {"worst": values[0], "median": np.median(values), "best": values[-1]}
    words = [f"{word} {four_digits(float(value))}" for word, value in places.items()]
    bar = {**bar_above("Rank"), "y": bar_y, "tickvals": [0, 0.5, 1], "ticktext": words, "len": 0.6}
    return {
        "color": ranks,
        "cmin": 0,
        "cmax": 1,
        "colorscale": [list(each) for each in TO_THE_BEST],
        "showscale": True,
        "colorbar": bar,
    }


def _described(trial: optuna.trial.FrozenTrial, value_name: str, names: Sequence[str]) -> str:
    parts = [f"{value_name}: {trial.values[0]:.6g}"]
    parts += [f"{name}: {_label(trial.params[name])}" for name in names]
    return f"Trial {trial.number}. {', '.join(parts)}"


def _labels(names: Sequence[str]) -> list[str]:
    """Labels of axes: long ones would run over each other. The page tells axes apart by them."""
    short = [shortened(name, _MAX_LABEL) for name in names]
    return short if len(set(short)) == len(set(names)) else list(names)


def _label(value: object) -> str:
    return four_digits(value) if isinstance(value, float) else str(value)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_LABEL else f"{text[: _MAX_LABEL - 3]}..."


def _param_axis(
    name: str, column: Sequence[ParamValue], distribution: BaseDistribution
) -> dict[str, object]:
    if isinstance(distribution, CategoricalDistribution):
        return _categories(name, column, distribution)
    is_log = isinstance(distribution, FloatDistribution | IntDistribution) and distribution.log
    numbers = np.array(column, dtype=np.float64)
    return _log_axis(name, numbers) if is_log else _axis(name, numbers)


def _categories(
    name: str, column: Sequence[ParamValue], distribution: CategoricalDistribution
) -> dict[str, object]:
    """The choices that occur, in the order of the search space."""
    seen = {repr(each) for each in column}
    choices = [each for each in distribution.choices if repr(each) in seen]
    places = {repr(each): place for place, each in enumerate(choices)}
    return {
        "label": literal(name),
        "values": [places[repr(each)] for each in column],
        "tickvals": list(range(len(choices))),
        "ticktext": [literal(_short(str(each))) for each in choices],
        "range": [-0.2, len(choices) - 0.8],
    }


def _axis(name: str, numbers: Floats) -> dict[str, object]:
    low, high = float(numbers.min()), float(numbers.max())
    different = np.unique(numbers)
    axis: dict[str, object] = {
        "label": literal(name),
        "values": numbers,
        "range": _apart(low, high),
    }
    if len(different) <= _MAX_TICKS:
        axis |= {
            "tickvals": different,
            "ticktext": [four_digits(float(each)) for each in different],
        }
    else:
        axis["tickformat"] = ".4~g"
    return axis


def _log_axis(name: str, numbers: Floats) -> dict[str, object]:
    """Positions are logarithms; labels are the values at both ends and at powers of ten."""
    logs = np.log10(numbers)
    low, high = float(logs.min()), float(logs.max())
    texts = {each: four_digits(10**each) for each in log_ticks(low, high)}
    places = sorted({*texts, *_steps(low, high)})
    # Plotly looks ticks up by their texts: those without a label differ in length.
    unseen = {each: "\u200b" * (n + 1) for n, each in enumerate(places)}
    return {
        "label": literal(name),
        "values": logs,
        "range": _apart(low, high),
        "tickvals": places,
        "ticktext": [texts.get(each, unseen[each]) for each in places],
    }


def _steps(low: float, high: float) -> list[float]:
    """Possible ends of a range on an axis with ticks: Plotly allows no positions in between."""
    return np.linspace(low, high, _N_STEPS).tolist() if high > low else []


def log_ticks(low: float, high: float) -> list[float]:
    """Both ends, and the powers of ten that are far enough from them.

    Args:
        low: Decimal logarithm of the least value.
        high: Decimal logarithm of the largest value.
    """
    if high <= low:
        return [low]
    apart = (high - low) / 12
    powers = range(math.ceil(low), math.floor(high) + 1)
    step = max(1, math.ceil(len(powers) / _MAX_TICKS))
    inner = [each for each in powers if each - low > apart and high - each > apart]
    return [low, *map(float, inner[::step]), high]


def _apart(low: float, high: float) -> list[float]:
    margin = 0.5 * abs(low) or 0.5
    return [low, high] if high > low else [low - margin, high + margin]
