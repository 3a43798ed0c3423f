"""From searches that were played to a table: area of regret, its end, device-time to a regret."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.search_quality.loop import Bettered, Played
from benchmarks.search_quality.systems import AUTO, PEERS, TPE

_RANDOM_ASHA = "Optuna, random + ASHA"
#: Of more tasks only means are shown.
_MOST_COLUMNS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One search on one task with one seed. Times are shares of the whole."""

    task: str
    system: str
    n_workers: int
    seed: int
    #: Under the regret over time, 0 to 1.
    area: float
    #: The same, if whole trainings alone count.
    area_completed: float
    #: The regret in the end.
    end: float
    n_trials: int
    search_ms: float
    #: When which regret was reached.
    steps: Sequence[tuple[float, float]]


class Judging(Protocol):
    """Says how good a value is."""

    @property
    def name(self) -> str: ...

    def regret(self, value: float) -> float:
        """0 is as good as it gets, 1 no good."""


def judge(played: Played, task: Judging, *, system: str, n_workers: int, seed: int) -> Judged:
    steps = _regrets(played.reported, played.end_s, task)
    return Judged(
        task=task.name,
        system=system,
        n_workers=n_workers,
        seed=seed,
        area=_area(steps),
        area_completed=_area(_regrets(played.completed, played.end_s, task)),
        end=steps[-1][1],
        n_trials=played.n_trials,
        search_ms=played.search_ms,
        steps=steps,
    )


def _regrets(best: Sequence[Bettered], end_s: float, task: Judging) -> list[tuple[float, float]]:
    return [(0.0, 1.0), *((each.at_s / end_s, task.regret(each.value)) for each in best)]


def _area(steps: Sequence[tuple[float, float]]) -> float:
    ends = [at for at, _ in steps[1:]] + [1.0]
    return sum((end - at) * regret for (at, regret), end in zip(steps, ends, strict=True))


def tables(judged: Sequence[Judged]) -> str:
    """Markdown, a table for each number of workers."""
    counts = sorted({each.n_workers for each in judged})
    return "\n\n".join(_table([each for each in judged if each.n_workers == n]) for n in counts)


def _table(judged: Sequence[Judged]) -> str:
    tasks = sorted({each.task for each in judged})
    columns = tasks if len(tasks) <= _MOST_COLUMNS else []
    systems = list(dict.fromkeys(each.system for each in judged))
    means = [
        "mean area",
        "mean end",
        "mean, completed",
        "time to TPE's end",
        "trials",
        "ms a trial",
    ]
    head = [f"{judged[0].n_workers} workers, {len(tasks)} tasks", *columns, *means]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for system in systems:
        cells = [_cell([each for each in judged if _is(each, system, task)]) for task in columns]
        mine = [each for each in judged if each.system == system]
        of: Sequence[Callable[[Judged], float]] = (
            lambda each: each.area,
            lambda each: each.end,
            lambda each: each.area_completed,
        )
        figures = [f"{_mean_of_tasks(mine, tasks, each):.3f}" for each in of]
        figures.append(_time_to(judged, system))
        figures.append(f"{statistics.fmean(each.n_trials for each in mine):.0f}")
        figures.append(f"{statistics.fmean(each.search_ms for each in mine):.1f}")
        lines.append(f"| {' | '.join([system, *cells, *figures])} |")
    return "\n".join([*lines, "", *_verdicts(judged, tasks)])


def _is(each: Judged, system: str, task: str) -> bool:
    return each.system == system and each.task == task


def _cell(judged: Sequence[Judged]) -> str:
    """Area with its standard error, and the end."""
    areas = [each.area for each in judged]
    error = statistics.stdev(areas) / len(areas) ** 0.5 if len(areas) > 1 else 0.0
    end = statistics.fmean(each.end for each in judged)
    return f"{statistics.fmean(areas):.3f} ± {error:.3f} / {end:.3f}"


def _mean_of_tasks(
    judged: Sequence[Judged], tasks: Sequence[str], of: Callable[[Judged], float]
) -> float:
    return statistics.fmean(
        statistics.fmean(of(each) for each in judged if each.task == task) for task in tasks
    )


def _time_to(judged: Sequence[Judged], system: str) -> str:
    """Median share of the time until the regret is what TPE's is in the end, by task and seed."""
    ends = {(each.task, each.seed): each.end for each in judged if each.system == TPE}
    shares = []
    for each in judged:
        if each.system == system and (goal := ends.get((each.task, each.seed))) is not None:
            shares.append(next((at for at, regret in each.steps if regret <= goal), 1.0))
    return f"{statistics.median(shares):.2f}" if shares else "-"


def _verdicts(judged: Sequence[Judged], tasks: Sequence[str]) -> list[str]:
    """The default beside the best peer, and on each task beside random search."""
    by_system = {
        system: [each for each in judged if each.system == system]
        for system in dict.fromkeys(each.system for each in judged)
    }
    peers = [name for name in PEERS if by_system.get(name)]
    if AUTO not in by_system or not peers:
        return []
    areas = {
        name: _mean_of_tasks(by_system[name], tasks, lambda each: each.area)
        for name in [AUTO, *peers]
    }
    best = min(peers, key=lambda name: areas[name])
    told = [f"{AUTO} / {best}: {areas[AUTO] / areas[best]:.2f} (mean area)"]
    for peer in dict.fromkeys(("random", _RANDOM_ASHA, best)):
        if peer in by_system:
            told.append(_beside(peer, by_system[AUTO], by_system[peer], tasks))
    return [line for each in told for line in (each, "")]


def _beside(
    peer: str, mine: Sequence[Judged], theirs: Sequence[Judged], tasks: Sequence[str]
) -> str:
    by_task = [_differences(mine, theirs, task) for task in tasks]
    if len(tasks) <= _MOST_COLUMNS:
        return (
            f"{AUTO} less {peer}, by task, in standard errors: {', '.join(map(_paired, by_task))}"
        )
    means = [statistics.fmean(each) for each in by_task]
    error = statistics.stdev(means) / len(means) ** 0.5
    worst = max(range(len(tasks)), key=lambda place: means[place])
    return (
        f"{AUTO} less {peer}: {statistics.fmean(means):+.3f} ± {error:.3f}, smaller on "
        f"{sum(each < 0 for each in means)} of {len(tasks)} tasks; the worst is {tasks[worst]}: "
        f"{_paired(by_task[worst])}"
    )


def _differences(mine: Sequence[Judged], theirs: Sequence[Judged], task: str) -> list[float]:
    """Of the areas on one task, seed by seed."""
    other = {each.seed: each.area for each in theirs if each.task == task}
    return [
        each.area - other[each.seed] for each in mine if each.task == task and each.seed in other
    ]


def _paired(differences: Sequence[float]) -> str:
    """Their mean, and the same in standard errors."""
    mean = statistics.fmean(differences)
    if len(differences) < 2 or not (spread := statistics.stdev(differences)):
        return f"{mean:+.3f}"
    return f"{mean:+.3f} ({mean / (spread / len(differences) ** 0.5):+.1f})"


def write_picture(judged: Sequence[Judged], path: Path) -> None:
    """Mean regret over time, a line for each system, in one HTML file."""
    import plotly.graph_objects as go

    figure = go.Figure()
    at = [k / 200 for k in range(201)]
    for system in dict.fromkeys(each.system for each in judged):
        mine = [each for each in judged if each.system == system]
        means = [statistics.fmean(_regret_at(each, share) for each in mine) for share in at]
        figure.add_trace(go.Scatter(x=at, y=means, name=system, line={"shape": "hv"}))
    figure.update_layout(
        xaxis_title="share of the time",
        yaxis_title="regret, mean over tasks, workers and seeds",
        template="plotly_white",
    )
    figure.write_html(path, include_plotlyjs=True)


def _regret_at(judged: Judged, share: float) -> float:
    return [regret for at, regret in judged.steps if at <= share][-1]
