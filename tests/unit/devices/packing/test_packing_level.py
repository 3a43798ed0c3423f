"""The number of attempts a device may carry goes to where it gets most done, and no further."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import a_gpu
from tuner.devices.packing.level import Packing

GPU = a_gpu(0).id
HOUR_S = 3600.0


@dataclass
class Attempt:
    id: str
    ready_at_s: float
    n_reports: int
    speed: float
    done: float = 0.0


@dataclass
class Machine:
    """Devices of which each does `throughput(n)` units a second while it carries n attempts.

    A unit is one report. Attempts have a startup without reports, a length and a speed, and
    each step of time is up to 35 % better or worse (a deviation of 20 %) for each of them.
    """

    throughput: Callable[[int], float]
    n_devices: int = 1
    startup_s: float = 4.0
    lengths: tuple[int, ...] = (50,)
    speeds: tuple[float, ...] = (1.0,)
    tells: bool = True
    max_level: int = 16
    seed: int = 0
    step_s: float = 1.0
    now_s: float = field(default=1000.0, init=False)
    n_units: float = field(default=0.0, init=False)
    levels: list[int] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.ids = [a_gpu(index).id for index in range(self.n_devices)]
        devices = [a_gpu(index) for index in range(self.n_devices)]
        self.packing = Packing(devices, max_level=self.max_level)
        self.running: dict[str, list[Attempt]] = {device_id: [] for device_id in self.ids}
        self.numbers = itertools.count()

    def run(self, hours: float) -> Machine:
        self.levels.clear()
        self.n_units = 0.0
        for _ in range(int(hours * HOUR_S / self.step_s)):
            self.now_s += self.step_s
            for device_id in self.ids:
                self.fill(device_id)
                self.work(device_id)
            self.levels.append(self.packing.limit(self.ids[0]))
        return self

    def fill(self, device_id: str) -> None:
        while len(self.running[device_id]) < self.packing.limit(device_id):
            attempt = Attempt(
                id=str(next(self.numbers)),
                ready_at_s=self.now_s + self.startup_s,
                n_reports=self.random.choice(self.lengths),
                speed=self.random.choice(self.speeds),
            )
            self.running[device_id].append(attempt)
            self.packing.started(device_id, attempt.id, self.now_s)

    def work(self, device_id: str) -> None:
        n_running = len(self.running[device_id])
        units = self.throughput(n_running) / n_running * self.step_s
        for attempt in list(self.running[device_id]):
            if attempt.ready_at_s <= self.now_s:
                self.advance(device_id, attempt, units * self.random.uniform(0.65, 1.35))

    def advance(self, device_id: str, attempt: Attempt, units: float) -> None:
        self.n_units += units
        before = int(attempt.done)
        attempt.done += units * attempt.speed
        for _ in range(before, min(int(attempt.done), attempt.n_reports)):
            if self.tells:
                self.packing.reported(device_id, attempt.id, self.now_s)
        if attempt.done >= attempt.n_reports:
            self.running[device_id].remove(attempt)
            self.packing.ended(device_id, attempt.id, self.now_s)

    @property
    def usual_level(self) -> int:
        """The most frequent one of the last third."""
        return Counter(self.levels[-len(self.levels) // 3 :]).most_common(1)[0][0]

    @property
    def units_per_s(self) -> float:
        return self.n_units / (len(self.levels) * self.step_s * self.n_devices)


def up_to_three(n: int) -> float:
    return float(min(n, 3))


def best_at_three(n: int) -> float:
    return float(n) if n <= 3 else max(0.2, 3 - 0.3 * (n - 3))


def worse_by_each(n: int) -> float:
    return 1 / (1 + 0.2 * (n - 1))


LONG = Machine(up_to_three, lengths=(1000,))
KINDS = {
    "even": LONG,
    "short": replace(LONG, lengths=(50,)),
    "lengths": replace(LONG, lengths=(5, 20, 80, 320)),
    "speeds": replace(LONG, speeds=(0.35, 0.7, 1.4, 2.8)),
    "four devices": replace(LONG, n_devices=4, lengths=(100, 300), speeds=(0.5, 1.0, 2.0)),
    "few reports": replace(LONG, speeds=(0.05,), lengths=(40,)),
    "no reports": replace(LONG, tells=False, lengths=(30,)),
}


by_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@by_kind
def test_settles_at_three_where_more_is_slower(kind, seed):
    machine = replace(kind, throughput=best_at_three, seed=seed).run(1)
    assert 2 <= machine.usual_level <= 4
    assert machine.run(1 / 2).units_per_s > 2.2


@by_kind
def test_settles_near_three_where_more_is_no_faster(kind):
    machine = replace(kind, throughput=up_to_three).run(1)
    assert 2 <= machine.usual_level <= 5
    assert machine.run(1 / 2).units_per_s > 2.2


@by_kind
def test_stays_at_one_where_two_is_slower(kind):
    machine = replace(kind, throughput=worse_by_each).run(2)
    assert machine.usual_level == 1
    assert machine.levels.count(1) > len(machine.levels) / 2


def test_goes_up_to_the_limit_and_stays():
    machine = replace(LONG, throughput=float, max_level=5).run(2)
    assert max(machine.levels) == machine.usual_level == 5


def test_short_attempts_are_packed_for_what_the_others_do_during_startups():
    machine = replace(LONG, throughput=lambda n: 1.0, lengths=(6,), startup_s=12.0).run(1)
    assert machine.usual_level >= 2


def test_tries_again_rarely():
    machine = replace(LONG, throughput=worse_by_each).run(12)
    n_tries = sum(after > before for before, after in itertools.pairwise(machine.levels))
    assert 2 <= n_tries <= 6


def test_follows_a_workload_that_changes():
    machine = replace(LONG, throughput=worse_by_each, lengths=(100,)).run(1)
    machine.throughput = up_to_three
    assert machine.run(3).usual_level == 3
    machine.throughput = worse_by_each
    assert machine.run(6).usual_level == 1


def test_every_device_has_a_limit_of_one_at_first():
    packing = Packing([a_gpu(0), a_gpu(1)])
    assert [packing.limit(a_gpu(index).id) for index in range(2)] == [1, 1]


def at_level(level: int) -> Machine:
    """A device that carries so many attempts and has settled there."""
    return replace(LONG, throughput=float, max_level=level).run(1)


def test_out_of_memory_lowers_the_limit_for_a_good_while():
    machine = at_level(3)
    machine.packing.out_of_memory(GPU, machine.now_s)
    assert machine.packing.limit(GPU) == 2
    machine.run(1 / 3)
    assert max(machine.levels) == 2
    machine.run(3)
    assert max(machine.levels) == 3


def test_out_of_memory_again_lowers_it_for_longer():
    machine = at_level(3)
    for _ in range(2):
        machine.packing.out_of_memory(GPU, machine.now_s)
        machine.run(1 / 3)
        while machine.packing.limit(GPU) < 3:
            machine.run(1 / 60)
    machine.packing.out_of_memory(GPU, machine.now_s)
    machine.run(4 / 3)
    assert max(machine.levels) == 2


def test_out_of_memory_of_several_together_is_one():
    machine = at_level(4)
    for attempt in machine.running[GPU][:3]:
        machine.now_s += 1
        machine.packing.out_of_memory(GPU, machine.now_s)
        machine.packing.ended(GPU, attempt.id, machine.now_s)
    assert machine.packing.limit(GPU) == 3


def test_out_of_memory_at_the_lowered_limit_lowers_it_further():
    machine = at_level(3)
    machine.packing.out_of_memory(GPU, machine.now_s)
    packing = machine.packing
    packing.ended(GPU, machine.running[GPU].pop().id, machine.now_s)
    packing.out_of_memory(GPU, machine.now_s + 11)
    assert packing.limit(GPU) == 1


def test_out_of_memory_alone_leaves_the_limit():
    machine = at_level(1)
    machine.packing.out_of_memory(GPU, machine.now_s)
    assert machine.packing.limit(GPU) == 1


def test_devices_of_one_type_share_and_others_do_not():
    twin, other = a_gpu(1), replace(a_gpu(2), name="NVIDIA Other")
    machine = replace(LONG, throughput=float)
    machine.packing = Packing([a_gpu(0), twin, other], max_level=3)
    machine.run(1)
    assert [machine.packing.limit(each) for each in (GPU, twin.id, other.id)] == [3, 3, 1]


def test_attempts_that_never_started_are_ignored():
    packing = Packing([a_gpu(0)])
    packing.reported(GPU, "17.1", 1.0)
    packing.ended(GPU, "17.1", 2.0)
    assert packing.limit(GPU) == 1


def test_reports_that_come_late_begin_the_measure_anew():
    machine = replace(LONG, throughput=up_to_three, tells=False, lengths=(20,)).run(1 / 4)
    machine.tells = True
    assert machine.run(1).usual_level == 3


events = st.lists(
    st.tuples(
        st.sampled_from(["start", "report", "report", "end", "out_of_memory"]),
        st.integers(0, 1),
        st.floats(0, 60),
    ),
    max_size=200,
)


@given(events=events, max_level=st.integers(1, 5))
def test_limit_is_at_least_one_and_lower_after_out_of_memory(events, max_level):
    packing = Packing([a_gpu(0), a_gpu(1)], max_level=max_level)
    numbers, now_s = itertools.count(), 0.0
    running: dict[str, list[str]] = {a_gpu(0).id: [], a_gpu(1).id: []}
    carried: list[tuple[float, str, int]] = []
    lowered: list[tuple[float, int]] = []
    for event, index, passed_s in events:
        device_id = a_gpu(index).id
        now_s += passed_s
        carried += [(now_s, each, len(attempts)) for each, attempts in running.items()]
        attempts = running[device_id]
        if event == "start":
            attempts.append(str(next(numbers)))
            packing.started(device_id, attempts[-1], now_s)
        elif event == "report" and attempts:
            packing.reported(device_id, attempts[0], now_s)
        elif event == "end" and attempts:
            packing.ended(device_id, attempts.pop(0), now_s)
        elif event == "out_of_memory":
            packing.out_of_memory(device_id, now_s)
            lately = [n for at_s, each, n in carried if each == device_id and at_s >= now_s - 10]
            if max(lately) > 1:  # Alone it says nothing of the number.
                lowered.append((now_s + 1200, max(lately) - 1))
        caps = [cap for until_s, cap in lowered if now_s < until_s and cap < max_level]
        assert 1 <= packing.limit(device_id) <= min(caps, default=max_level)
