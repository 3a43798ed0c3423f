"""A study with a pruner that pauses, really run: as it stands in the middle, and at its end."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
N_TRIALS, N_STEPS = 12, 9
_PATIENCE_S = 100.0
_FILE = f"""
study: paused
storage: sqlite:///run.db
objectives: {{accuracy: maximize}}
trial: {{function: "climb:train"}}
search_space:
  x: {{type: float, low: 0, high: 1}}
  kind: {{type: categorical, choices: [a, b]}}
  y: {{type: float, low: 0, high: 1, when: {{kind: a}}}}
  epochs: {N_STEPS}
sampler: {{name: random, seed: 3}}
pruner: {{name: asha, min_resource: 1, reduction_factor: 3}}
devices: cpu:2
budget: {{trials: 40}}
"""
_PROGRAM = """
import os, time
import optuna

def train(trial):
    state = trial.load_checkpoint()
    done = state["step"] if state else 0
    for step in range(done + 1, trial.params.epochs + 1):
        while trial.number > 7 and not os.path.exists("on"):
            time.sleep(0.02)
        time.sleep(0.05)
        trial.report(trial.params.x * step / 9, step=step)
        trial.save_checkpoint({"step": step}, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return trial.params.x
"""
_N_PAUSED = """
SELECT count(*) FROM trials JOIN trial_system_attributes USING (trial_id)
WHERE state = 'WAITING' AND key = 'tuner:paused' AND value_json <> 'null'
"""


@dataclass(frozen=True, kw_only=True)
class PausedStudy:
    """Copies of one database."""

    folder: Path
    #: While trials 8 and 9 run and others are paused.
    middle: Path
    #: After the last trial: those that were paused are pruned.
    end: Path


def run_paused_study(folder: Path) -> PausedStudy:
    """
    Args:
        folder: Empty; the study's own.
    """
    (folder / "climb.py").write_text(_PROGRAM)
    (folder / "study.yaml").write_text(_FILE)
    command = [sys.executable, "-m", "tuner.run", "study.yaml", "--trials", str(N_TRIALS)]
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    with (folder / "out.txt").open("w") as out:
        running = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            _wait_for_pauses(running, folder)
            middle = _copy(folder / "run.db", folder / "middle.db")
            (folder / "on").touch()
            assert running.wait(_PATIENCE_S) == 0, (folder / "out.txt").read_text()
        finally:
            if running.poll() is None:
                running.terminate()
                running.wait(_PATIENCE_S)
    return PausedStudy(
        folder=folder, middle=middle, end=_copy(folder / "run.db", folder / "end.db")
    )


def _wait_for_pauses(running: subprocess.Popen[bytes], folder: Path) -> None:
    """Until both devices are held by trials that may not go on, and nothing changes any more."""
    deadline, seen = time.monotonic() + _PATIENCE_S, (0, 0, 0)
    while time.monotonic() < deadline and running.poll() is None:
        time.sleep(1.2)
        now = (_count(folder, _N_PAUSED), _count(folder, _N_OPEN), _count(folder, _N_CHANGES))
        if now == seen and now[0] >= 3 and now[1] == 2:
            return
        seen = now
    raise AssertionError(f"no trial has paused: {(folder / 'out.txt').read_text()}")


_N_OPEN = """
SELECT count(*) FROM tuner_attempts JOIN trials USING (trial_id)
WHERE outcome IS NULL AND trials.number > 7
"""


#: Grows with each attempt that begins or ends, and with each trial that ends.
_N_CHANGES = """
SELECT (SELECT count(*) + count(outcome) FROM tuner_attempts)
    + (SELECT count(*) FROM trials WHERE state IN ('COMPLETE', 'PRUNED', 'FAIL'))
"""


def _count(folder: Path, query: str) -> int:
    try:
        connection = sqlite3.connect(f"file:{folder / 'run.db'}?mode=ro", uri=True)
    except sqlite3.OperationalError:
        return 0
    try:
        return int(connection.execute(query).fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # Its tables are not there yet.
    finally:
        connection.close()


def _copy(source: Path, target: Path) -> Path:
    """As SQLite's own backup makes it, of a database that is being written."""
    read, written = sqlite3.connect(source), sqlite3.connect(target)
    with written:
        read.backup(written)
    read.close()
    written.close()
    return target
