"""What happened and what it cost, for people and for programs."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import psutil

from tests.chaos.blame import Cost, costs
from tests.chaos.chaos import Result
from tests.chaos.nodes.play import NodeResult
from tuner.store.records.provenance import git_state, package_versions


def table_of(result: Result) -> str:
    """Markdown: faults by kind, and each study's account."""
    repeated = {each.study: each.repeated for each in result.accounts}
    by_kind = costs(result.struck, repeated, result.began_at_s)
    lines = ["| fault | times | attempts after it | steps done again | seconds of them |"]
    lines += ["|---|---|---|---|---|"]
    lines += [_row(kind, cost) for kind, cost in sorted(by_kind.items())]
    total = Cost(
        n=len(result.struck),
        n_attempts=sum(cost.n_attempts for cost in by_kind.values()),
        n_steps=sum(cost.n_steps for cost in by_kind.values()),
        seconds=sum(cost.seconds for cost in by_kind.values()),
    )
    n_kinds = sum(cost.n > 0 for cost in by_kind.values())
    lines += [_row(f"**all** ({n_kinds} kinds)", total), ""]
    lines += [
        "| study | trials | attempts | lost | steps made | steps done again | seconds of them "
        "| again though saved | reports lost |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for each in result.accounts:
        again = sum(one.n_steps for one in each.repeated)
        seconds = sum(one.seconds for one in each.repeated)
        saved = sum(one.n_saved_steps for one in each.repeated)
        lines.append(
            f"| {each.study} | {each.n_trials} | {sum(each.attempts.values())} "
            f"| {len(each.findings)} | {each.n_steps_made} | {again} | {seconds:.1f} | {saved} "
            f"| {each.n_lost_reports} |"
        )
    return "\n".join(lines)


def _row(title: str, cost: Cost) -> str:
    return f"| {title} | {cost.n} | {cost.n_attempts} | {cost.n_steps} | {cost.seconds:.1f} |"


def write_json(result: Result | NodeResult, path: Path) -> None:
    """Everything, with the machine and the versions."""
    content = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "git": asdict(git_state(Path(__file__).parent)),
        "versions": package_versions(),
        "machine": {
            "cores": os.cpu_count(),
            "memory_bytes": psutil.virtual_memory().total,
            "kernel": platform.release(),
            "load": os.getloadavg(),
        },
        "result": asdict(result),
    }
    path.write_text(json.dumps(content, indent=1))
