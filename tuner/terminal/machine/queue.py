"""Output of `tuner queue`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tuner.errors import EXIT_BUDGET_REACHED, EXIT_INTERRUPTED
from tuner.queue.entries import Entry
from tuner.terminal.tables import table

_HEADER = ("number", "study", "state", "priority", "file")
_EMPTY = "Your queue on this machine is empty. Put a study into it: tuner queue study.yaml"


def queue_text(entries: Sequence[Entry], log: Callable[[int], Path]) -> str:
    """A line for each study, in the order in which they start.

    Args:
        entries: All entries.
        log: Path of an entry's output.
    """
    if not entries:
        return _EMPTY
    rows = [
        (str(each.id), each.study, _state(each), str(each.priority), each.file) for each in entries
    ]
    failed = [f"Output of {each.id}: {log(each.id)}" for each in entries if _has_failed(each)]
    return "\n".join([table(_HEADER, rows), *failed])


def _has_failed(entry: Entry) -> bool:
    return entry.exit_code not in (None, EXIT_BUDGET_REACHED, EXIT_INTERRUPTED)


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
