"""What happened to machines and what it cost."""

from __future__ import annotations

from tests.chaos.nodes.play import Moved, NodeResult


def table_of_nodes(result: NodeResult) -> str:
    """Markdown: the faults, where the trials went, and each study's account."""
    kinds = [each.kind for each in result.struck]
    lines = ["| fault | times |", "|---|---|"]
    lines += [f"| {kind} | {kinds.count(kind)} |" for kind in sorted(set(kinds))]
    lines += [f"| **all** ({len(set(kinds))} kinds) | {len(kinds)} |", ""]
    lines += [
        "| machine lost by | trials there | taken over after | first, last one elsewhere after"
    ]
    lines[-1] += " | steps done again | late steps, unacknowledged | for |"
    lines += ["|---|---|---|---|---|---|---|", *map(_row, result.moved), ""]
    lines += ["| study | trials | attempts | lost | steps made | of them late or again |"]
    lines += ["|---|---|---|---|---|---|"]
    for each in result.accounts:
        again = sum(one.n_steps for one in each.repeated)
        lines.append(
            f"| {each.study} | {each.n_trials} | {sum(each.attempts.values())} "
            f"| {len(each.findings)} | {each.n_steps_made} | {again} |"
        )
    lines += ["", f"{result.n_changes} rows of history, {result.took_s:.0f} s"]
    return "\n".join(lines)


def _row(moved: Moved) -> str:
    seconds = f"{_seconds(moved.first_s)}, {_seconds(moved.last_s)}"
    late = f"{moved.n_late} | {moved.late_s:.1f} s"
    over = f"{moved.kind} | {moved.n_trials} | {_seconds(moved.taken_over_s)}"
    return f"| {over} | {seconds} | {moved.n_again} | {late} |"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s"
