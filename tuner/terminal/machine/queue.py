"""What `tuner queue` prints."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.errors import EXIT_BUDGET_REACHED, EXIT_INTERRUPTED
from tuner.queue.entries import Entry
from tuner.terminal.tables import table

_HEADER = ("number", "study", "state", "priority", "file")
_EMPTY = "Your queue on this machine is empty. Put a study into it: tuner queue study.yaml"


def queue_text(entries: Sequence[Entry]) -> str:
    """A line for each study, in the order in which they start."""
    if not entries:
        return _EMPTY
    rows = [
        (str(each.id), each.study, _state(each), str(each.priority), each.file) for each in entries
    ]
    return table(_HEADER, rows)


def _state(entry: Entry) -> str:
    if entry.is_waiting:
        return "waits"
    if entry.exit_code is None:
        return f"runs (pid {entry.pid})"
    if entry.exit_code == EXIT_BUDGET_REACHED:
        return "completed"
    if entry.exit_code == EXIT_INTERRUPTED:
        return "stopped"
    return f"failed (exit code {entry.exit_code})"
