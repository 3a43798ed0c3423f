"""Searches that were played already, a line each in a file, so that hours need not be one call."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.search_quality.judge import Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is played."""

    curves: Path
    system: str
    n_workers: int
    seed: int
    #: Seconds that an attempt takes more.
    restart_s: float
    #: How long, in whole trainings of the median configuration.
    n_medians: float
    #: The second objective; None for one.
    second: str | None = None
    #: How the task is made harder; None as recorded.
    spoilt: str | None = None
    #: In place of `restart_s`, in whole trainings of the median configuration.
    restart_share: float | None = None

    @property
    def key(self) -> str:
        known = {**asdict(self), "curves": self.curves.name}
        return json.dumps({k: v for k, v in known.items() if v is not None}, sort_keys=True)


class Kept:
    """What a file has, and what is added to it.

    Args:
        path: None where nothing is kept.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self._known = {found["case"]: found["judged"] for found in map(json.loads, lines)}

    def find(self, case: Case) -> Judged | None:
        found = self._known.get(case.key)
        return None if found is None else Judged(**found)

    def add(self, case: Case, judged: Judged) -> None:
        if self._path is None:
            return
        with self._path.open("a") as file:
            file.write(json.dumps({"case": case.key, "judged": asdict(judged)}) + "\n")
