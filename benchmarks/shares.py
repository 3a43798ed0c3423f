"""How a machine is divided among its users: guarantees, idle devices, equal hours, repeated work.

    python -m benchmarks.shares
    python -m benchmarks.shares --histories 1000 --gives 12

The decision and the histories are on a virtual clock; the gaps between two users and the repeated
steps are those of real studies on CPU slots. Prints a Markdown table and writes a JSON file. See
docs/benchmarks.md.
"""

import argparse
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median

import yaml

from benchmarks.common.machine import package_versions
from benchmarks.common.results import write_json
from tests.unit.shares.shares_bench import Machine, ask, census_of, ids, whole
from tuner.shares.claims import Claim, read_claims
from tuner.shares.decision import decide

N_DEVICES = 8
LOOK_S = 0.5
_WATCH_EVERY_S = 0.02
PROGRAM = """
import time

import optuna


def train(trial):
    state = trial.load_checkpoint()
    for step in range(state["step"] + 1 if state else 0, 40):
        with open("%s-%s.steps" % (STUDY, trial.number), "a") as file:
            file.write("%s\\n" % step)
        time.sleep(0.05)
        trial.save_checkpoint({"step": step}, step)
        trial.report(step, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return trial.params.x
"""


_LEASES = """
    select d.device, l.leased_at, l.released_at
    from tuner_leases l join tuner_devices d on d.id = l.device_id
"""


@dataclass(frozen=True, kw_only=True)
class Measures:
    """The measures of issue and page."""

    histories: int
    guarantees_late: int
    #: Above the time that a trial takes to save, the longest of all.
    guarantee_overhead_s: float
    hours_off_by_pct: float
    decision_ms: float
    n_given_back: int
    gap_median_s: float
    gap_longest_s: float
    n_handovers: int
    handover_median_s: float
    handover_longest_s: float
    steps: int
    steps_repeated: int


def histories(n: int, seed: int) -> tuple[int, float]:
    """Random histories of 2 to 6 users: how many guarantees came late, and the longest overhead."""
    rng = random.Random(seed)
    n_late, longest_s = 0, 0.0
    for _ in range(n):
        uids = list(range(rng.randint(2, 6)))
        left, guaranteed = N_DEVICES, {}
        for uid in uids:
            guaranteed[uid] = rng.randint(0, left)
            left -= guaranteed[uid]
        save_s = rng.choice([0.0, 2.0, 30.0])
        box = Machine(n_devices=N_DEVICES, census=census_of(uids, guaranteed), save_s=save_s)
        since: dict[int, float] = {}
        for _ in range(rng.randint(3, 10)):
            uid = rng.choice(uids)
            box.ask(ask(uid, rng.randint(0, N_DEVICES)))
            since.pop(uid, None)
            end_s = box.now_s + rng.uniform(1.0, 90.0)
            while box.now_s < end_s:
                before = len(box.taken)
                is_still = not box.look().moves and not box.leaving and len(box.taken) == before
                for name, one in box.asks.items():
                    due = min(guaranteed[one.uid], one.wants)
                    if len(box.holds[name]) >= due:
                        since.pop(one.uid, None)
                        continue
                    over_s = box.now_s - since.setdefault(one.uid, box.now_s) - save_s
                    longest_s = max(longest_s, over_s)
                    n_late += over_s > 5.0
                box.now_s = min(end_s, _next_change_s(box)) if is_still else box.now_s + LOOK_S
    return n_late, longest_s


def _next_change_s(box: Machine) -> float:
    """When a decision may differ from the last one though nobody asks for anything."""
    hold_s = box.census.hold_s
    ends = [since + hold_s for holds in box.holds.values() for since in holds.values()]
    turn_s = (box.now_s // hold_s + 1) * hold_s
    return max(box.now_s + LOOK_S, min([turn_s, *(each for each in ends if each > box.now_s)]))


def hours_off_by() -> float:
    """The largest difference from equal hours, in percent, of 2 to 6 equal users."""
    worst = 0.0
    for n_users in range(2, 7):
        box = Machine(n_devices=N_DEVICES, census=census_of(range(n_users)), save_s=5.0)
        for uid in range(n_users):
            box.ask(ask(uid, N_DEVICES))
        box.run(3600.0, look_every_s=1.0)
        mean_s = sum(box.device_s.values()) / n_users
        worst = max(worst, *(abs(each / mean_s - 1) for each in box.device_s.values()))
    return 100 * worst


def decision_ms() -> float:
    """The median of a decision on 64 GPUs for 100 claims of 20 users, each with some devices."""
    gpus = ids(64)
    random.Random(1).shuffle(gpus)
    asks = [
        ask(number % 20, 64, 64, name=f"claim-{number}", holds=gpus[number : number + 1])
        for number in range(100)
    ]
    census = census_of(range(20), dict.fromkeys(range(10), 2.0))
    taken = []
    for _ in range(50):
        began = time.perf_counter()
        decide(asks, whole(64), census, 1e6)
        taken.append(time.perf_counter() - began)
    return 1000 * median(taken)


@dataclass(frozen=True, kw_only=True)
class Given:
    """What happened when studies gave slots to others, really."""

    #: For how long slots were free while a study waited, in seconds.
    gaps_s: list[float]
    #: From the end of a trial of one study on a slot to the start of one of another, in seconds.
    handovers_s: list[float]
    n_steps: int
    n_repeated: int


def real(n_rounds: int, folder: Path) -> Given:
    """A study that has all slots, and others with more priority that come and go."""
    rules = {"cpu_slots": 4, "hold": 0.5, "grace": "20s", "folder": str(folder / "claims")}
    (folder / "shares.yaml").write_text(yaml.safe_dump(rules))
    low = _start(folder, "low", 4, 10, trials=100_000)
    time.sleep(10.0)
    watch = _Watch(folder / "claims", 4)
    watch.start()
    for number in range(n_rounds):
        _start(folder, f"high{number}", 2, 90, trials=2).wait()
        time.sleep(3.0)
    watch.is_over.set()
    watch.join()
    low.terminate()
    low.wait()
    steps = Counter(
        (file.stem, step)
        for file in folder.glob("low-*.steps")
        for step in file.read_text().split()
    )
    return Given(
        gaps_s=watch.gaps_s,
        handovers_s=handovers(folder),
        n_steps=sum(steps.values()),
        n_repeated=sum(n - 1 for n in steps.values()),
    )


def handovers(folder: Path) -> list[float]:
    """For how long a slot had no trial when it went from one study to another, by their records."""
    leases: dict[str, list[tuple[datetime, datetime | None, str]]] = {}
    for file in folder.glob("*.db"):
        with closing(sqlite3.connect(file)) as database:
            for device, begin, end in database.execute(_LEASES):
                until = datetime.fromisoformat(end) if end else None
                leases.setdefault(device, []).append(
                    (datetime.fromisoformat(begin), until, file.stem)
                )
    return [
        (other[0] - one[1]).total_seconds()
        for of_slot in leases.values()
        for one, other in pairwise(sorted(of_slot, key=lambda lease: lease[0]))
        if one[2] != other[2] and one[1] is not None
    ]


def _start(
    folder: Path, name: str, n_slots: int, priority: int, *, trials: int
) -> "subprocess.Popen[bytes]":
    (folder / f"steps_{name}.py").write_text(PROGRAM.replace("STUDY", repr(name)))
    study = {
        "study": name,
        "trial": {"function": f"steps_{name}:train"},
        "search_space": {"x": {"type": "float", "low": 0.0, "high": 1.0}},
        "sampler": {"name": "random", "seed": 1},
        "pruner": "none",
        "devices": f"cpu:{n_slots}",
        "priority": priority,
        "budget": {"trials": trials},
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(study))
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tuner.run", f"{name}.yaml"],
            cwd=folder,
            env={**os.environ, "TUNER_SHARES": str(folder / "shares.yaml")},
            stdout=log,
            stderr=subprocess.STDOUT,
        )


class _Watch(threading.Thread):
    """Looks at the claims again and again: for how long a slot that somebody waits for is free."""

    def __init__(self, folder: Path, n_slots: int) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._slots = [f"cpu:{number}" for number in range(n_slots)]
        self._free_since: dict[str, float] = {}
        self.gaps_s: list[float] = []
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.wait(_WATCH_EVERY_S):
            self._look(time.monotonic(), read_claims(self._folder).claims)

    def _look(self, now_s: float, claims: tuple[Claim, ...]) -> None:
        held = {device_id for claim in claims for device_id in claim.holds}
        is_awaited = any(claim.wants > len(claim.holds) for claim in claims)
        for slot in self._slots:
            if slot not in held and is_awaited:
                self._free_since.setdefault(slot, now_s)
            elif slot in self._free_since:
                since_s = self._free_since.pop(slot)
                if slot in held:
                    self.gaps_s.append(now_s - since_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--gives", type=int, default=8, help="how often a study gives back, really")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("benchmark-shares.json"))
    options = parser.parse_args()
    n_late, overhead_s = histories(options.histories, options.seed)
    with tempfile.TemporaryDirectory() as folder:
        given = real(options.gives, Path(folder))
    measures = Measures(
        histories=options.histories,
        guarantees_late=n_late,
        guarantee_overhead_s=overhead_s,
        hours_off_by_pct=hours_off_by(),
        decision_ms=decision_ms(),
        n_given_back=len(given.gaps_s),
        gap_median_s=median(given.gaps_s),
        gap_longest_s=max(given.gaps_s),
        n_handovers=len(given.handovers_s),
        handover_median_s=median(given.handovers_s),
        handover_longest_s=max(given.handovers_s),
        steps=given.n_steps,
        steps_repeated=given.n_repeated,
    )
    print(table(measures))
    packages = package_versions(Path(sys.executable), ["gpu-tuner", "optuna"])
    write_json(options.output, packages={"tuner": packages}, figures=asdict(measures))


def table(found: Measures) -> str:
    rows = [
        (
            f"guarantees met later than the time to save + 5 s, in {found.histories:,} histories",
            f"{found.guarantees_late}",
        ),
        (
            "longest time to a guarantee beyond the time to save",
            f"{found.guarantee_overhead_s:.1f} s",
        ),
        (
            f"a device idle while another study waits, {found.n_given_back} times, median",
            f"{found.gap_median_s:.2f} s",
        ),
        ("the same, longest", f"{found.gap_longest_s:.2f} s"),
        (
            f"a device without a trial between two studies, {found.n_handovers} times, median",
            f"{found.handover_median_s:.2f} s",
        ),
        ("the same, longest", f"{found.handover_longest_s:.2f} s"),
        (f"steps repeated, of {found.steps:,}", f"{found.steps_repeated}"),
        (
            "device-hours of equal users in an hour, furthest from equal",
            f"{found.hours_off_by_pct:.1f} %",
        ),
        ("one decision, 64 GPUs, 100 claims", f"{found.decision_ms:.1f} ms"),
    ]
    return "\n".join(["| measure | value |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)])


if __name__ == "__main__":
    main()
