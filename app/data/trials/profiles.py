"""Traces of the torch profiler in a trial's folder, and their slowest operations."""

from __future__ import annotations

import functools
import gzip
import json
import socket
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.checkpoints.paths import FOLDER_NAME
from tuner.checkpoints.trial_folders import TrialKey, locate
from tuner.monitoring.best_profile import PROFILES
from tuner.queries.trials.attempts import StoredAttempt

#: Categories of work on a GPU and on the CPU.
_CATEGORIES = ("kernel", "cpu_op")
_MAX_BYTES = 64 * 2**20
_MAX_ROWS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """All calls of one operation in a trace."""

    name: str
    where: str
    n_calls: int
    #: With the operations that it calls.
    total_ms: float


def find_profiles(attempts: Sequence[StoredAttempt], key: TrialKey | None) -> list[Path]:
    """The traces of a trial on this host, the newest attempt last.

    Args:
        attempts: The trial's attempts.
        key: Identifies the trial: another one may use its folder by now.
    """
    found: set[Path] = set()
    for attempt in attempts:
        folder = Path(attempt.log_path).parent
        is_ours = FOLDER_NAME in folder.resolve().parts
        if attempt.host != socket.gethostname() or not is_ours:
            continue
        own = folder if key is None else locate(folder, key)
        if own is not None:
            found.update(own.glob(PROFILES))
    return sorted(found)


def read_operations(path: Path) -> list[Operation]:
    """The slowest operations, GPU work first; empty if the file is too large.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is damaged.
    """
    status = path.stat()
    if status.st_size > _MAX_BYTES:
        return []
    return list(_operations(path, status.st_mtime_ns))


@functools.lru_cache(maxsize=16)
def _operations(path: Path, _changed_ns: int) -> tuple[Operation, ...]:
    try:
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
            events = json.load(file)["traceEvents"]
    except (EOFError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    calls: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in _CATEGORIES:
            calls[event["cat"], event["name"]].append(float(event.get("dur", 0)))
    found = [
        Operation(
            name=name,
            where="GPU" if category == "kernel" else "CPU",
            n_calls=len(durations),
            total_ms=sum(durations) / 1000,
        )
        for (category, name), durations in calls.items()
    ]
    found.sort(key=lambda each: (each.where != "GPU", -each.total_ms))
    shown = [each for each in found if each.where == "GPU"][:_MAX_ROWS]
    return (*shown, *[each for each in found if each.where == "CPU"][:_MAX_ROWS])
