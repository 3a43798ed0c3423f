"""What can be measured once in a process only: a cold start, and memory.

    python -m benchmarks.database.once {tuner,optuna} URL

Opens a stored study as the one or the other does, and prints its looks at time and memory as JSON.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import optuna
from optuna.pruners import MedianPruner
from optuna.samplers import RandomSampler

from benchmarks.common.systems import ROOT
from benchmarks.database.rig import opened
from benchmarks.database.stored import OBJECTIVE, SPACE, STUDY, value_at
from tuner.host.clock import SystemClock

IMPORTED, READ, ASKED, JUDGED = "imported", "read", "asked", "judged"

Looks = Mapping[str, Mapping[str, float]]
"""By what was done by then: seconds since all was imported, and bytes of memory."""


class Looker:
    """Notes how far it is."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()
        self.looks: dict[str, dict[str, float]] = {}
        self.look(IMPORTED)

    def look(self, name: str) -> None:
        at_s = time.perf_counter() - self._began_s
        self.looks[name] = {"at_s": at_s, "rss": _memory("VmRSS"), "peak": _memory("VmHWM")}


def open_with_tuner(url: str) -> Looks:
    """As a dispatcher starts; the verdict is on the trial that it got first."""
    looker, clock = Looker(), SystemClock()
    with opened(url, clock, n_slots=1) as study:
        looker.look(READ)
        asked = study.search.ask()
        assert asked is not None
        looker.look(ASKED)
        study.search.report(asked.trial_id, 1, {OBJECTIVE: value_at(1)})
        looker.look(JUDGED)
        study.search.fail(asked.trial_id)
        study.recorder.end(clock.now().utc)
        study.recorder.commit()
    return looker.looks


def open_with_optuna(url: str) -> Looks:
    looker = Looker()
    study = optuna.load_study(
        study_name=STUDY, storage=url, sampler=RandomSampler(), pruner=MedianPruner()
    )
    trials = study.get_trials(deepcopy=False)
    looker.look(READ)
    trial = study.ask()
    SPACE.suggest(trial)
    looker.look(ASKED)
    trial.report(value_at(1), 1)
    trial.should_prune()
    looker.look(JUDGED)
    study.tell(trial, state=optuna.trial.TrialState.FAIL)
    assert trials
    return looker.looks


OPENERS: Mapping[str, Callable[[str], Looks]] = {
    "tuner": open_with_tuner,
    "optuna": open_with_optuna,
}


def in_new_process(system: str, url: str, *, limit_s: float) -> Looks:
    """Opens the study at `url` in a process that has done nothing before."""
    answer = subprocess.run(
        [sys.executable, "-m", "benchmarks.database.once", system, url],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        timeout=limit_s,
    )
    looks: Looks = json.loads(answer.stdout)
    return looks


def _memory(name: str) -> float:
    """Of this process, as the kernel counts it. `ru_maxrss` would have the parent's in it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return float(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {name}: memory is measured on Linux only.")


def main() -> int:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print(json.dumps(OPENERS[sys.argv[1]](sys.argv[2])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
