"""What was measured, as data, as a Markdown table and as JSON."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from benchmarks.common.machine import commit_of, this_machine
from benchmarks.common.systems import ROOT
from benchmarks.common.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Result:
    """One run of one system. The figures are None where the run failed."""

    system: str
    title: str
    workload: Workload
    repeat: int
    trials_done: int
    exit_code: int | None
    wall_s: float
    efficiency: float | None
    median_gap_ms: float | None
    gap_by: str
    first_start_s: float | None
    peak_concurrency: int
    load_before: float
    problem: str | None


HEADER = (
    "| workload | system | efficiency | wall | first trial after "
    "| pause between trials, median | runs |\n"
    "|---|---|---|---|---|---|---|"
)


def markdown_table(results: Sequence[Result]) -> str:
    """One row per workload and system: medians, with the range where there are repeats."""
    groups: dict[tuple[Workload, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.workload, result.system), []).append(result)
    return "\n".join([HEADER, *(_row(runs) for runs in groups.values())])


def _row(runs: Sequence[Result]) -> str:
    first, good = runs[0], [run for run in runs if run.problem is None]
    if not good:
        return f"| {first.workload} | {first.title} | {first.problem} | | | | 0 of {len(runs)} |"
    pause = _spread(good, lambda run: run.median_gap_ms, "{:.0f} ms")
    cells = (
        str(first.workload),
        first.title,
        _spread(good, lambda run: run.efficiency, "{:.2f}"),
        _spread(good, lambda run: run.wall_s, "{:.1f} s"),
        _spread(good, lambda run: run.first_start_s, "{:.1f} s"),
        f"{pause} (by {first.gap_by})" if first.gap_by != "matched" else f"{pause} (matched)",
        str(len(good)) if len(good) == len(runs) else f"{len(good)} of {len(runs)}",
    )
    return f"| {' | '.join(cells)} |"


def _spread(runs: Sequence[Result], figure: Callable[[Result], float | None], form: str) -> str:
    values = [value for run in runs if (value := figure(run)) is not None]
    if not values:
        return "-"
    middle = form.format(median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({form.format(min(values))} to {form.format(max(values))})"


def write_json(path: Path, *, packages: Mapping[str, object], figures: object) -> None:
    """Write the figures with everything that is needed to read them later."""
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit_of(ROOT),
        "machine": asdict(this_machine()),
        "packages": packages,
        "results": figures,
    }
    path.write_text(json.dumps(report, indent=2) + "\n")
