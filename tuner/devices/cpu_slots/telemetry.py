"""Usage of CPU slots: processor time and memory of their processes."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import psutil

from tuner.devices.device import Device, DeviceId, DeviceKind
from tuner.devices.usage.readings import DeviceReading, ProcessReading, Sessions

#: Interval in seconds at which the session of each process on the machine is read.
_LOOK_EVERY_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """Processor time of a process so far."""

    processor_s: float
    memory_bytes: int


class CpuTelemetry:
    """Reads CPU slots. A slot without a holder has no load.

    Args:
        devices: The slots; other devices are skipped.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = tuple(each for each in devices if each.kind is DeviceKind.CPU)
        self._processes: dict[int, psutil.Process] = {}
        self._sessions: dict[int, int] = {}
        self._looked_at_s: float | None = None
        self._taken_s: dict[int, float] = {}
        self._read_at_s: float | None = None

    def read(self, sessions: Sessions, now_s: float) -> Mapping[DeviceId, DeviceReading]:
        wanted = frozenset(each for held in sessions.values() for each in held)
        self._find(wanted, now_s)
        uses = self._uses()
        passed_s = None if self._read_at_s is None else now_s - self._read_at_s
        before, self._taken_s = self._taken_s, {pid: use.processor_s for pid, use in uses.items()}
        self._read_at_s = now_s
        if not passed_s:
            return {}
        by_session: dict[int, tuple[float, int]] = {}
        for pid, use in uses.items():
            used_s, memory_bytes = by_session.get(self._sessions[pid], (0.0, 0))
            # A new process may have run for long before, as a spare of the fork server.
            used_s += max(0.0, use.processor_s - before.get(pid, use.processor_s))
            by_session[self._sessions[pid]] = (used_s, memory_bytes + use.memory_bytes)
        return {
            device.id: _reading(device, sessions.get(device.id, ()), by_session, passed_s)
            for device in self._devices
        }

    def close(self) -> None:
        """Nothing to let go."""

    def _find(self, wanted: frozenset[int], now_s: float) -> None:
        """Keeps the processes of the wanted sessions, and searches for new ones."""
        self._processes = {
            pid: process
            for pid, process in self._processes.items()
            if self._sessions[pid] in wanted
        }
        is_due = self._looked_at_s is None or now_s - self._looked_at_s >= _LOOK_EVERY_S
        if is_due and wanted:
            self._looked_at_s = now_s
            members = {
                pid: session for pid in psutil.pids() if (session := _session(pid)) in wanted
            }
        else:
            members = {pid: pid for pid in wanted}
        for pid, session in members.items():
            if pid not in self._processes:
                self._add(pid, session)
        self._sessions = {pid: self._sessions[pid] for pid in self._processes}

    def _add(self, pid: int, session: int) -> None:
        try:
            self._processes[pid] = psutil.Process(pid)
        except psutil.Error:
            return
        self._sessions[pid] = session

    def _uses(self) -> dict[int, _Use]:
        found = {}
        for pid, process in list(self._processes.items()):
            try:
                with process.oneshot():
                    times, memory = process.cpu_times(), process.memory_info()
            except psutil.Error:
                del self._processes[pid]
                continue
            found[pid] = _Use(processor_s=times.user + times.system, memory_bytes=memory.rss)
        return found


def _reading(
    device: Device,
    sessions: Collection[int],
    uses: Mapping[int, tuple[float, int]],
    passed_s: float,
) -> DeviceReading:
    n_cores = device.n_threads or 1
    own = {session: uses[session] for session in sessions if session in uses}
    processes = tuple(
        ProcessReading(
            session=session,
            memory_bytes=memory_bytes,
            utilization_pct=round(100 * used_s / passed_s / n_cores),
        )
        for session, (used_s, memory_bytes) in own.items()
    )
    used_s = sum(each for each, _ in own.values())
    return DeviceReading(
        utilization_pct=round(100 * used_s / passed_s / n_cores),
        memory_used_bytes=sum(memory for _, memory in own.values()),
        processes=processes,
    )


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None
