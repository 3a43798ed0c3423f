"""Several pruners on the same curves, in parallel: a table and a picture."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from tuner.simulate.recorded import FAR, RecordedCurves
from tuner.simulate.run import Simulated
from tuner.terminal.wording import duration


def by_pruner(runs: Sequence[Simulated]) -> dict[str, list[Simulated]]:
    """Runs in the order in which their pruners were named."""
    found: dict[str, list[Simulated]] = {}
    for each in runs:
        found.setdefault(each.pruner, []).append(each)
    return found


def table_of(runs: Sequence[Simulated], objective: str) -> Table:
    """Means over the seeds; of the best value also its standard error."""
    table = Table(title=f"{runs[0].n_devices} devices, simulated; means over the seeds")
    names = ("pruner", f"best {objective}", "ends after", "device-hours", "idle", "trials")
    for name in (*names, "completed", "attempts"):
        is_text = name == "pruner"
        table.add_column(name, justify="left" if is_text else "right", no_wrap=True)
    for pruner, of_pruner in by_pruner(runs).items():
        table.add_row(pruner, *_cells(of_pruner))
    return table


def speed_of(runs: Sequence[Simulated]) -> float:
    """Simulated steps per second of this machine, without the sampler's and pruner's time."""
    beside_search_s = sum(run.took_s - run.search_s for run in runs)
    return sum(run.n_reports for run in runs) / (beside_search_s or 1.0)


def recorded_lines(curves: RecordedCurves, runs: Sequence[Simulated]) -> list[str]:
    """Facts about an earlier study's curves that limit the validity of the table."""
    n_trials = sum(run.n_trials for run in runs)
    n_cut_short = sum(run.n_cut_short for run in runs)
    apart = curves.median_distance
    lines = [
        f"curves: {curves.n_whole} completed and {curves.n_cut} pruned trials of the study "
        f"({curves.n_left_out} left out). Each suggestion got the curve of the nearest one, "
        f"{apart:.2g} of a parameter's range away in the median"
        + (": too far to tell configurations apart." if apart > FAR else "."),
        "The steps of a trial are taken to last equally long: when each ended is not recorded.",
    ]
    if n_cut_short:
        lines.append(
            f"{n_cut_short} of {n_trials} simulated trials ended where their recording does, as "
            "pruned: they were pruned at the time. A pruner that prunes less than that study did "
            "looks cheaper here than it is; --whole plays completed trials alone, where every "
            "pruner looks better than it is."
        )
    return lines


def _cells(runs: Sequence[Simulated]) -> list[str]:
    def mean(values: Sequence[float]) -> float:
        return statistics.fmean(values)

    finals = [run.best[-1].value for run in runs if run.best]
    error = statistics.stdev(finals) / len(finals) ** 0.5 if len(finals) > 1 else 0.0
    return [
        f"{mean(finals):.5g} ± {error:.2g}" if finals else "none",
        duration(mean([run.makespan_s for run in runs])),
        f"{mean([run.device_s for run in runs]) / 3600:.2f}",
        f"{mean([run.idle_share for run in runs]):.1%}",
        f"{mean([run.n_trials for run in runs]):.0f}",
        f"{mean([run.n_completed for run in runs]):.0f}",
        f"{mean([run.n_attempts for run in runs]):.0f}",
    ]


def curve_of(runs: Sequence[Simulated], at_s: Sequence[float]) -> list[float | None]:
    """The mean over the seeds of the best value so far; None until all have one.

    Args:
        runs: Runs of one pruner.
        at_s: Times on the virtual clock, in order.
    """
    means: list[float | None] = []
    for instant_s in at_s:
        values = [[each.value for each in run.best if each.at_s <= instant_s][-1:] for run in runs]
        known = [each[0] for each in values if each]
        means.append(statistics.fmean(known) if len(known) == len(runs) else None)
    return means


def write_picture(runs: Sequence[Simulated], objective: str, path: Path) -> None:
    """The best value so far over device-hours, a line for each pruner, in one file."""
    import plotly.graph_objects as go  # A second, for those who want a picture.

    end_s = max(run.makespan_s for run in runs)
    at_s = [end_s * (k / 200) ** 2 for k in range(1, 201)]
    figure = go.Figure()
    for pruner, of_pruner in by_pruner(runs).items():
        hours = [each / 3600 * of_pruner[0].n_devices for each in at_s]
        figure.add_trace(
            go.Scatter(x=hours, y=curve_of(of_pruner, at_s), name=pruner, line={"shape": "hv"})
        )
    figure.update_layout(
        title=f"Simulated: mean of {len(by_pruner(runs)[runs[0].pruner])} seeds",
        xaxis_title="device-hours",
        yaxis_title=f"best {objective} so far",
        template="plotly_white",
    )
    figure.write_html(path, include_plotlyjs=True)
