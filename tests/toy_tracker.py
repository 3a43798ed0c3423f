"""A package outside of the tuner that registers trackers: one that writes, and two that do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_CODE = '''
import json
import time
from pathlib import Path


class ToyTracker:
    """Appends each call to a file, as a line of JSON."""

    def __init__(self, file: str, fails_at: int | None = None) -> None:
        self.file = file
        self.fails_at = fails_at
        self.steps = {}

    def open(self, study):
        self.path = study.folder / self.file
        self.write("open", study=study.name)

    def begin(self, run, steps):
        self.write("begin", trial=run.trial, params=dict(run.params), tags=dict(run.tags),
                   steps=dict(steps))
        return steps

    def log(self, trial, points):
        for point in points:
            if point.step == self.fails_at and not Path("repaired").exists():
                raise ConnectionError("the tracker is down")
        self.write("log", trial=trial, points=[[p.name, p.step, p.value] for p in points])

    def end(self, trial, ending):
        self.write("end", trial=trial, outcome=ending.outcome, status=ending.status.value,
                   values=dict(ending.values))

    def close(self):
        self.write("close")

    def write(self, call, **about):
        with self.path.open("a") as file:
            file.write(json.dumps({"call": call, **about}) + "\\\\n")


class HungTracker(ToyTracker):
    def begin(self, run, steps):
        time.sleep(3600)


class DyingTracker(ToyTracker):
    def open(self, study):
        import os
        os._exit(7)
'''

_ENTRY_POINTS = """
[tuner.trackers]
toy = toy_tracker_plugin:ToyTracker
hung = toy_tracker_plugin:HungTracker
dying = toy_tracker_plugin:DyingTracker
absent = toy_tracker_absent:ToyTracker
no_tracker = pathlib:Path
"""


def install(folder: Path) -> None:
    """Writes the package into a folder, as pip would; the folder has to be on `sys.path`."""
    metadata = folder / "toy_tracker_plugin-1.0.dist-info"
    metadata.mkdir(parents=True)
    (folder / "toy_tracker_plugin.py").write_text(_CODE.replace("\\\\n", "\\n"))
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: toy-tracker-plugin\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(_ENTRY_POINTS)


def calls(path: Path, name: str) -> list[dict[str, Any]]:
    """What a toy tracker has written of one of its methods."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [each for each in map(json.loads, lines) if each["call"] == name]
