"""Several trials on one GPU: by promise, by real memory, and as many as pay off."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fakes import GIB, a_gpu
from tests.integration.dispatcher.world import FakeWorker, World
from tuner.devices.allocation.width import (
    ONE,
    FixedWidth,
    LearnedWidth,
    MemoryShare,
    Share,
    Width,
    parts_of,
)
from tuner.devices.device import Holder
from tuner.domain.attempt import Cause, Outcome
from tuner.search_spaces import parse_space
from tuner.store.schema.models import AttemptRow, LeaseRow

QUARTER = Share(parts=parts_of(0.25))
SIZES = parse_space({"gib": {"type": "int", "low": 5, "high": 9}})


class Gpu:
    """The memory of GPU 0 as the programs on it take it, and how fast they are together."""

    def __init__(self, world: World, pace: Callable[[int], float] = lambda n: 1.0) -> None:
        self.world = world
        self.pace = pace
        self.used: dict[str, int] = {}
        self.most = 0

    def take(self, worker: FakeWorker, size_bytes: int) -> None:
        self.used[worker.id] = size_bytes
        self.most = max(self.most, len(self.used))
        self._show()

    def leave(self, worker: FakeWorker) -> None:
        self.used.pop(worker.id, None)
        self._show()

    @property
    def used_bytes(self) -> int:
        return sum(self.used.values())

    def _show(self) -> None:
        pids = {worker.id: worker.pid for worker in self.world.workers}
        self.world.probe.use(
            a_gpu(0),
            *(
                Holder(pid=pids[owner], user="me", command="python", memory_bytes=size)
                for owner, size in self.used.items()
            ),
        )


@pytest.fixture
def make_shared(make_world):
    def make(width: Width, **keywords) -> World:
        keywords = {"n_devices": 1, "rule": FixedWidth(width=width), "widths": (width,)} | keywords
        return make_world(lambda worker: None, **keywords)

    return make


def trains_on(gpu: Gpu, *, size_bytes: int, n_steps: int = 6, step_s: float = 5.0):
    """Takes its memory at once, and reports at the pace that the GPU has with so many on it."""

    def program(worker: FakeWorker) -> None:
        def step(number: int) -> None:
            worker.report(number)
            if number == n_steps:
                gpu.leave(worker)
                worker.complete()
            else:
                worker.later(step_s * gpu.pace(len(gpu.used)), lambda: step(number + 1))

        def begin() -> None:
            worker.hello()
            size = int(worker.request.assign.params.get("gib", 0)) * GIB or size_bytes
            gpu.take(worker, size)
            if gpu.used_bytes > 80 * GIB:
                gpu.leave(worker)
                worker.fail("CUDA out of memory", Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY)
                return
            worker.later(step_s, lambda: step(1))

        worker.later(0.5, begin)

    return program


def test_four_quarters_run_on_one_gpu_and_torch_is_held_to_them(make_shared):
    world = make_shared(QUARTER, n_trials=8)
    gpu = Gpu(world)
    world.program = trains_on(gpu, size_bytes=10 * GIB)
    assert world.run().n_completed == 8
    assert gpu.most == 4
    assert {lease.share for lease in world.rows(LeaseRow)} == {0.25}
    limits = {worker.request.memory_fraction for worker in world.workers}
    assert all(limit is not None and 0.2 < limit < 0.25 for limit in limits)


def test_memory_of_eight_gib_packs_by_memory(make_shared):
    world = make_shared(MemoryShare(memory_bytes=24 * GIB), n_trials=7)
    gpu = Gpu(world)
    world.program = trains_on(gpu, size_bytes=20 * GIB)
    assert world.run().n_completed == 7
    assert gpu.most == 3


def test_trial_that_takes_more_than_its_promise_keeps_others_out(make_shared):
    world = make_shared(QUARTER, n_trials=6)
    gpu = Gpu(world)
    world.program = trains_on(gpu, size_bytes=38 * GIB)
    world.run()
    # The second came when the first had not taken its memory yet; no third one did.
    assert gpu.most <= 4
    assert gpu.used_bytes == 0


def test_peak_memory_of_each_attempt_is_recorded(make_shared):
    world = make_shared(QUARTER, n_trials=4)
    world.program = trains_on(Gpu(world), size_bytes=10 * GIB)
    world.run()
    assert {row.peak_memory_bytes for row in world.rows(AttemptRow)} == {10 * GIB}


def test_peak_memory_of_a_whole_gpu_is_recorded_too(make_shared):
    world = make_shared(ONE, n_trials=2)
    world.program = trains_on(Gpu(world), size_bytes=33 * GIB)
    world.run()
    assert {row.peak_memory_bytes for row in world.rows(AttemptRow)} == {33 * GIB}


# -- auto --------------------------------------------------------------------------------------


@pytest.fixture
def make_auto(make_world):
    def make(**keywords) -> World:
        keywords = {"n_devices": 1, "rule": LearnedWidth(), "widths": (ONE,)} | keywords
        return make_world(lambda worker: None, **keywords)

    return make


def test_auto_starts_with_one_trial_and_packs_what_fits(make_auto):
    world = make_auto(n_trials=60)
    gpu = Gpu(world)
    world.program = trains_on(gpu, size_bytes=9 * GIB, n_steps=12)
    assert world.run().n_completed == 60
    first = [worker.id for worker in world.workers[:1]]
    assert first == ["0.1"]
    assert 4 <= gpu.most <= 8, "80 GiB hold eight of 9 GiB, and none was asked for promises"
    assert all(worker.request.memory_fraction is None for worker in world.workers)


def test_auto_stays_at_one_where_two_are_slower_together(make_auto):
    world = make_auto(n_trials=40)
    gpu = Gpu(world, pace=lambda n: float(n * n))
    world.program = trains_on(gpu, size_bytes=4 * GIB, n_steps=12)
    assert world.run().n_completed == 40
    assert gpu.most <= 2, "two were tried, and no more"


def test_auto_learns_what_a_trial_takes_from_its_parameters(make_auto):
    world = make_auto(n_trials=60, space=SIZES)
    gpu = Gpu(world)
    world.program = trains_on(gpu, size_bytes=0, n_steps=12)
    result = world.run()
    assert result.n_completed == 60
    shares = {round(lease.share, 3) for lease in world.rows(LeaseRow)}
    assert len(shares) > 3


def test_running_out_of_memory_beside_others_costs_a_retry_and_not_the_trial(make_auto):
    world = make_auto(n_trials=30, retries=0)
    gpu = Gpu(world)
    steady = trains_on(gpu, size_bytes=9 * GIB, n_steps=12)
    greedy: list[str] = []

    def program(worker: FakeWorker) -> None:
        steady(worker)
        if len(gpu.used) >= 3 and worker.request.assign.attempt_number == 1 and not greedy:
            greedy.append(worker.id)
            worker.later(
                20.0,
                lambda: (
                    gpu.leave(worker),
                    worker.fail("CUDA out of memory", Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY),
                ),
            )

    world.program = program
    result = world.run()
    assert greedy, "no trial ever shared its GPU with two others"
    assert (result.n_completed, result.n_failed) == (30, 0)
    trial = greedy[0].partition(".")[0]
    again = next(w for w in world.workers if w.id == f"{trial}.2")
    assert again.request.assign.devices == ("GPU 0",)


def test_running_out_of_memory_alone_is_the_trials_own_failure(make_auto):
    world = make_auto(n_trials=1, retries=3)
    world.program = trains_on(Gpu(world), size_bytes=90 * GIB)
    assert world.run().n_failed == 1
    assert len(world.workers) == 2


def test_trial_that_breaks_its_promise_is_tried_once_with_a_gpu_of_its_own(make_shared):
    world = make_shared(QUARTER, n_trials=4)

    def program(worker: FakeWorker) -> None:
        worker.later(0.1, worker.hello)
        is_held = worker.request.memory_fraction is not None and worker.request.memory_fraction < 1
        is_greedy = worker.trial_number == 1
        if is_greedy and is_held:
            worker.later(
                1.0,
                lambda: worker.fail("no memory", Outcome.OUT_OF_MEMORY, Cause.DEVICE_MEMORY),
            )
        else:
            worker.later(5.0, worker.complete)

    world.program = program
    assert world.run().n_completed == 4
    again = next(worker for worker in world.workers if worker.id == "1.2")
    assert again.request.memory_fraction is None
    shares = sorted(lease.share for lease in world.rows(LeaseRow))
    assert shares == [0.25] * 4 + [1.0]
