"""Stand-ins for the adapters. One is here only if the contract suite also runs on it."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tuner.devices.device import Device, DeviceId, DeviceKind, DeviceStatus, Holder
from tuner.dispatch.notices import Notice, Snapshot
from tuner.domain.attempt import AttemptId
from tuner.domain.messages import FromWorker, Hello, ToWorker
from tuner.errors import DeviceError, LaunchError
from tuner.host.clock import Instant
from tuner.launch.inbox import Event, Received, SourceId, WorkerExited
from tuner.launch.request import LaunchRequest

GIB = 1024**3


def a_gpu(index: int, *, memory_bytes: int = 80 * GIB) -> Device:
    """A GPU with a UUID made of its number: `GPU-00000000-…`."""
    return Device(
        id=DeviceId(f"GPU-{index:08x}-0000-4000-8000-000000000000"),
        kind=DeviceKind.GPU,
        name="NVIDIA Fake",
        index=index,
        memory_bytes=memory_bytes,
    )


class FakeProbe:
    """GPUs whose state the test sets.

    Args:
        devices: A number of idle GPUs, or the devices themselves.
        cuda_visible_devices: Only told back, as `GpuProbe` asks.
        problems: Likewise.
    """

    def __init__(
        self,
        devices: int | Sequence[Device] = 2,
        *,
        cuda_visible_devices: str | None = None,
        problems: tuple[str, ...] = (),
    ) -> None:
        listed = [a_gpu(index) for index in range(devices)] if isinstance(devices, int) else devices
        idle = DeviceStatus(memory_used_bytes=0, utilization_pct=0)
        self._devices = tuple(listed)
        self._statuses: dict[DeviceId, DeviceStatus] = {device.id: idle for device in listed}
        self.cuda_visible_devices = cuda_visible_devices
        self.problems = problems
        self.is_open = True

    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def status(self, device: Device) -> DeviceStatus:
        if not self.is_open or device.id not in self._statuses:
            raise DeviceError(f"{device.label} ({device.id}) could not be read: it is lost.")
        return self._statuses[device.id]

    def close(self) -> None:
        self.is_open = False

    def use(self, device: Device, *holders: Holder, memory_used_bytes: int | None = None) -> None:
        """Puts processes on a device; its memory is theirs where none is given."""
        used = sum(holder.memory_bytes or 0 for holder in holders)
        if memory_used_bytes is not None:
            used = memory_used_bytes
        before = self._statuses[device.id]
        self._statuses[device.id] = replace(before, memory_used_bytes=used, holders=holders)

    def set_status(self, device: Device, status: DeviceStatus) -> None:
        self._statuses[device.id] = status

    def lose(self, device: Device) -> None:
        """The GPU falls off the bus: reading it fails from now on."""
        del self._statuses[device.id]

    def find(self, device: Device) -> None:
        """It is back, and idle."""
        self._statuses[device.id] = DeviceStatus(memory_used_bytes=0, utilization_pct=0)


class FakeClock:
    """A clock that stands still until the test moves it."""

    def __init__(self) -> None:
        self._elapsed_s = self._set_forward_s = 0.0

    def now(self) -> Instant:
        utc_s = self._elapsed_s + self._set_forward_s
        return Instant(
            utc=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=utc_s),
            monotonic_s=500.0 + self._elapsed_s,
            since_boot_s=self.since_boot_s,
        )

    @property
    def since_boot_s(self) -> float:
        """As any process of this machine reads it."""
        return 7000.0 + self._elapsed_s

    def advance(self, seconds: float) -> None:
        self._elapsed_s += seconds

    def jump(self, seconds: float) -> None:
        """Somebody sets the machine's clock."""
        self._set_forward_s += seconds


class FakeInbox:
    """Events that the test posts. Waiting for one moves the clock instead of lasting."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._events: list[Event] = []
        self._plans: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def post(self, event: Event) -> None:
        self._events.append(event)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Does something once the clock has moved that far."""
        at_s = self._clock.now().monotonic_s + seconds
        self._plans.append((at_s, next(self._order), action))

    def drain(self, timeout_s: float) -> list[Event]:
        self._do_what_is_due()
        if not self._events:
            now_s = self._clock.now().monotonic_s
            next_s = min((at_s for at_s, _, _ in self._plans), default=now_s + timeout_s)
            self._clock.advance(max(0.0, min(timeout_s, next_s - now_s)))
            self._do_what_is_due()
        return sorted(self.take(lambda _: True), key=lambda e: isinstance(e, WorkerExited))

    def take(self, is_wanted: Callable[[Event], bool]) -> list[Event]:
        """Removes and gives the events that are wanted, in order."""
        taken = [event for event in self._events if is_wanted(event)]
        self._events = [event for event in self._events if not is_wanted(event)]
        return taken

    def _do_what_is_due(self) -> None:
        now_s = self._clock.now().monotonic_s
        due = sorted((p for p in self._plans if p[0] <= now_s + 1e-9), key=lambda p: p[:2])
        self._plans = [p for p in self._plans if p[0] > now_s + 1e-9]
        for _, _, action in due:
            action()


class FakeLauncher:
    """Workers that live until the test, or a signal, ends them.

    Args:
        inbox: Where exits go.
        on_launch: Told about each worker; plays its program.
    """

    def __init__(
        self, inbox: FakeInbox, on_launch: Callable[[LaunchRequest], None] | None = None
    ) -> None:
        self._inbox = inbox
        self._on_launch = on_launch
        self._pids = itertools.count(10_001)
        self._ports = itertools.count(20_001)
        self._running: dict[tuple[AttemptId, int], int] = {}
        self._pids_given: dict[tuple[AttemptId, int], int] = {}
        self.requests: list[LaunchRequest] = []
        #: Signals that were sent, in order.
        self.signals: list[tuple[AttemptId, signal.Signals]] = []
        #: Attempts whose programs do not end at SIGTERM.
        self.stubborn: set[AttemptId] = set()
        #: Why no worker can be started; None where it can.
        self.problem: str | None = None

    @property
    def running(self) -> tuple[AttemptId, ...]:
        return tuple(dict.fromkeys(attempt_id for attempt_id, _ in self._running))

    def launch(self, requests: Sequence[LaunchRequest]) -> tuple[int, ...]:
        if self.problem is not None:
            raise LaunchError(self.problem)
        pids = [next(self._pids) for _ in requests]
        for request, pid in zip(requests, pids, strict=True):
            self._running[request.attempt_id, request.rank] = pid
            self._pids_given[request.attempt_id, request.rank] = pid
        self.requests += requests
        for request in requests:
            if self._on_launch is not None:
                self._on_launch(request)
        return tuple(pids)

    def free_port(self) -> int:
        return next(self._ports)

    def terminate(self, attempt_id: AttemptId) -> None:
        self._signal(attempt_id, signal.SIGTERM)
        if attempt_id not in self.stubborn:
            self._exit_all(attempt_id, -signal.SIGTERM)

    def kill(self, attempt_id: AttemptId) -> None:
        self._signal(attempt_id, signal.SIGKILL)
        self._exit_all(attempt_id, -signal.SIGKILL)

    def close(self) -> None:
        self._running.clear()

    def exit(
        self, attempt_id: AttemptId, exit_code: int, rank: int = 0, *, is_lost: bool = False
    ) -> None:
        """The process of a rank ends; no error where it has ended."""
        if self._running.pop((attempt_id, rank), None) is not None:
            exited = WorkerExited(
                attempt_id=attempt_id, rank=rank, exit_code=exit_code, is_lost=is_lost
            )
            self._inbox.post(exited)

    def is_alive(self, pid: int) -> bool:
        return pid in self._running.values()

    def pid_of(self, attempt_id: AttemptId, rank: int = 0) -> int:
        """Also once it has ended."""
        return self._pids_given[attempt_id, rank]

    def _signal(self, attempt_id: AttemptId, number: signal.Signals) -> None:
        if attempt_id in self.running:
            self.signals.append((attempt_id, number))

    def _exit_all(self, attempt_id: AttemptId, exit_code: int) -> None:
        for running_id, rank in list(self._running):
            if running_id == attempt_id:
                self.exit(attempt_id, exit_code, rank)


class FakeChannel:
    """The dispatcher's end of a channel whose other ends the test holds.

    Args:
        inbox: Where messages go.
    """

    address = "fake"

    def __init__(self, inbox: FakeInbox) -> None:
        self._inbox = inbox
        self._tokens: dict[AttemptId, str] = {}
        self._owners: dict[SourceId, AttemptId | None] = {}
        self._sent: dict[SourceId, list[ToWorker]] = {}
        self._numbers = itertools.count(1)

    def expect(self, attempt_id: AttemptId) -> str:
        self._tokens[attempt_id] = f"token of {attempt_id} {next(self._numbers)}"
        return self._tokens[attempt_id]

    def send(self, source: SourceId, message: ToWorker) -> None:
        if source in self._owners:
            self._sent[source].append(message)

    def broadcast(self, attempt_id: AttemptId, message: ToWorker) -> None:
        for source in self._of(attempt_id):
            self.send(source, message)

    def read_rest(self, attempt_id: AttemptId) -> list[Event]:
        return self._inbox.take(
            lambda event: isinstance(event, Received) and event.message.attempt_id == attempt_id
        )

    def dismiss(self, attempt_id: AttemptId) -> None:
        self._tokens.pop(attempt_id, None)
        for source in self._of(attempt_id):
            del self._owners[source]

    def close(self) -> None:
        self._owners.clear()

    def connect(self) -> SourceId:
        """The worker's side: a new connection."""
        source = SourceId(next(self._numbers))
        self._owners[source] = None
        self._sent[source] = []
        return source

    def say(self, source: SourceId, message: FromWorker) -> None:
        """The worker's side: sends. One who may not speak loses the connection."""
        if source not in self._owners:
            return
        if isinstance(message, Hello) and self._tokens.get(message.attempt_id) == message.token:
            self._owners[source] = message.attempt_id
        if self._owners[source] != message.attempt_id:
            del self._owners[source]
            return
        self._inbox.post(Received(source=source, message=message))

    def heard(self, source: SourceId) -> list[ToWorker]:
        """The worker's side: what it was sent."""
        return self._sent[source]

    def is_open(self, source: SourceId) -> bool:
        """The worker's side: whether the dispatcher still listens."""
        return source in self._owners

    def _of(self, attempt_id: AttemptId) -> list[SourceId]:
        return [source for source, owner in self._owners.items() if owner == attempt_id]


class RecordingView:
    """Remembers what people were shown."""

    refresh_every_s = 0.0

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.snapshots: list[Snapshot] = []

    def __enter__(self) -> RecordingView:
        return self

    def __exit__(self, *_: object) -> None: ...

    def show(self, notice: Notice) -> None:
        self.notices.append(notice)

    def refresh(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)
