"""What it costs the dispatcher to look at its GPUs, and how large a week of samples is.

    python -m benchmarks.sampling cost --gpus 8 --seconds 3600
    python -m benchmarks.sampling cost --real --seconds 600
    python -m benchmarks.sampling size --gpus 8 --days 7

The real sampler, the real record and a real SQLite file, on a clock that jumps from second to
second. NVML is the tests' stand-in, which reads a text file in every call. With --real it is the
driver of this machine and its GPUs, which are looked at as often as they answer.
"""

import argparse
import ctypes
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import optuna
import psutil
import pynvml

from benchmarks.common.machine import package_versions, this_machine
from benchmarks.common.results import write_json
from tests.nvml_stub import NvmlStub, StubGpu, StubProcess
from tuner.devices.allocation.pool import Lease
from tuner.devices.device import Device
from tuner.devices.nvidia.probe import open_nvml
from tuner.devices.nvidia.telemetry import NvmlTelemetry
from tuner.devices.usage.readings import DeviceReading
from tuner.devices.usage.tally import Holding, Tally, tally_of
from tuner.dispatch.upkeep.device_usage import Usage
from tuner.dispatch.upkeep.telemetry_thread import Sampler
from tuner.domain.attempt import Attempt
from tuner.host.clock import Instant
from tuner.store.connection.database import Database, open_database
from tuner.store.records.dispatchers.starts import StartRecord
from tuner.store.records.provenance import GitState, host_facts
from tuner.store.records.recorder import Recorder

MB = 1_000_000
STUB = Path(__file__).parents[1] / "tests" / "nvml_stub" / "nvml_stub.c"
#: Of one transaction that fills a database.
_CHUNK_S = 600
_PACKAGES = ("nvidia-ml-py", "psutil", "sqlalchemy", "optuna")


class JumpingClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self._at = Instant(utc=datetime(2026, 3, 1, tzinfo=UTC), monotonic_s=0.0)

    def now(self) -> Instant:
        return self._at

    def advance(self, seconds: float) -> None:
        self._at = Instant(
            utc=self._at.utc + timedelta(seconds=seconds),
            monotonic_s=self._at.monotonic_s + seconds,
        )


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Processor time of a second of a study, in which all GPUs are busy."""

    gpus: int
    seconds: int
    look_ms: float
    #: To hand over, write and roll up, in the loop and on the database's thread.
    write_ms: float
    median_wall_of_look_ms: float

    @property
    def share_of_core(self) -> float:
        return (self.look_ms + self.write_ms) / 1000


@dataclass(frozen=True, kw_only=True)
class Size:
    """Of a database of nothing else than samples."""

    gpus: int
    days: float
    n_rows: int
    sqlite_bytes: int
    seconds: float


@contextmanager
def stubbed(folder: Path, n_gpus: int) -> Iterator[tuple[Device, ...]]:
    """GPUs of a machine that has none."""
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, STUB], check=True)
    stub = NvmlStub(library=library, state_file=folder / "gpus.txt", folder=folder)
    os.environ["FAKE_NVML"] = str(stub.state_file)
    pynvml.nvmlLib = ctypes.CDLL(str(library))
    stub.write([_a_gpu(number) for number in range(n_gpus)])
    with driver() as devices:
        yield devices


@contextmanager
def driver() -> Iterator[tuple[Device, ...]]:
    """The GPUs that NVML has."""
    probe = open_nvml(None)
    if probe is None:
        sys.exit("This machine has no NVIDIA driver.")
    yield probe.devices()
    probe.close()


def _a_gpu(number: int) -> StubGpu:
    return StubGpu(
        uuid=f"GPU-{number:04}",
        utilization_pct=90 + number % 8,
        used_mib=60_000 + number,
        power_mw=600_000 + 1000 * number,
        pcie_bytes=(10**12, 10**12),
        nvlink_kib=(10**9, 10**9),
        processes=(StubProcess(pid=os.getpid(), mib=60_000),),
    )


@contextmanager
def recording(
    folder: Path, devices: tuple[Device, ...], clock: JumpingClock
) -> Iterator[tuple[Database, Recorder, list[Holding]]]:
    """A study with an attempt on each device."""
    database = open_database(f"sqlite:///{folder}/study.db")
    study = optuna.create_study(storage=database.storage, study_name="s")
    start = StartRecord(
        study_id=study._study_id,
        host=host_facts(),
        seed=0,
        study_file="",
        folder="",
        versions={},
        git=GitState(),
    )
    recorder = Recorder(database, start, devices, clock=clock)
    holdings = []
    for device in devices:
        trial = study.ask()
        attempt = Attempt(
            trial_id=trial._trial_id,
            trial_number=trial.number,
            number=1,
            seed=0,
            leased_at=clock.now().utc,
        )
        lease = Lease(number=1, attempt_id=attempt.id, devices=(device,))
        recorder.lease(attempt, lease, params={}, log_path="")
        sessions = frozenset({os.getsid(0)})
        holdings.append(
            Holding(
                attempt_id=attempt.id,
                device_id=device.id,
                share=1.0,
                sessions=sessions,
                since_s=0.0,
            )
        )
    recorder.commit()
    yield database, recorder, holdings
    database.close()


def measure_cost(n_gpus: int | None, seconds: int) -> Cost:
    """Sampling, and everything that is done with the samples.

    Args:
        n_gpus: GPUs of the stand-in; None for those of this machine.
        seconds: Number of looks.
    """
    folder = Path(tempfile.mkdtemp(prefix="bench-sampling-"))
    clock = JumpingClock()
    walls: list[float] = []
    look_s = write_s = 0.0
    with (
        driver() if n_gpus is None else stubbed(folder, n_gpus) as devices,
        recording(folder, devices, clock) as (_, recorder, held),
    ):
        n_gpus = len(devices)
        sampler = Sampler(NvmlTelemetry, devices, clock, every_s=1.0)
        sampler.hold(held, clock.now().monotonic_s)
        usage = Usage(recorder, sampler)
        for _ in range(seconds):
            clock.advance(1.0)
            began_s, began_wall_s = time.process_time(), time.perf_counter()
            sampler.look(clock.now())
            walls.append(time.perf_counter() - began_wall_s)
            looked_s = time.process_time()
            usage.poll(clock.now())
            recorder.commit()
            look_s += looked_s - began_s
            write_s += time.process_time() - looked_s
        sampler.close()
    shutil.rmtree(folder)
    return Cost(
        gpus=n_gpus,
        seconds=seconds,
        look_ms=1000 * look_s / seconds,
        write_ms=1000 * write_s / seconds,
        median_wall_of_look_ms=1000 * sorted(walls)[len(walls) // 2],
    )


def measure_size(n_gpus: int, days: float) -> Size:
    """Every second is written and rolled up as a running study does it, on a faster clock."""
    folder = Path(tempfile.mkdtemp(prefix="bench-sampling-"))
    clock = JumpingClock()
    began_s = time.perf_counter()
    with (
        stubbed(folder, n_gpus) as devices,
        recording(folder, devices, clock) as (
            database,
            recorder,
            _,
        ),
    ):
        dice = random.Random(0)
        pool = [_noisy(devices, dice) for _ in range(500)]
        for _ in range(round(days * 86_400 / _CHUNK_S)):
            first_s = int(clock.now().utc.timestamp())
            for second in range(first_s, first_s + _CHUNK_S):
                for device, tally in zip(devices, dice.choice(pool), strict=True):
                    recorder.usage.sample(device.id, second, tally)
            recorder.commit()
            clock.advance(_CHUNK_S)
            while recorder.roll_up(clock.now().utc):
                pass
        with database.engine.connect() as connection:
            n_rows = connection.exec_driver_sql("SELECT count(*) FROM tuner_usage").scalar_one()
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        n_bytes = (folder / "study.db").stat().st_size
    shutil.rmtree(folder)
    lasted_s = time.perf_counter() - began_s
    return Size(gpus=n_gpus, days=days, n_rows=n_rows, sqlite_bytes=n_bytes, seconds=lasted_s)


def _noisy(devices: tuple[Device, ...], dice: random.Random) -> list[Tally]:
    """Figures that fill as many bytes as those of a machine at work."""
    return [
        tally_of(
            DeviceReading(
                utilization_pct=dice.randrange(101),
                memory_used_bytes=dice.randrange(143_000) * 2**20,
                power_mw=dice.randrange(70_000, 700_000),
                temperature_c=dice.randrange(30, 85),
                sm_clock_mhz=dice.randrange(200, 1980),
                memory_clock_mhz=2619,
                pcie_rx_kib=dice.randrange(50_000_000),
                pcie_tx_kib=dice.randrange(50_000_000),
                nvlink_rx_kib=dice.randrange(400_000_000),
                nvlink_tx_kib=dice.randrange(400_000_000),
            ),
            dice.randrange(995, 1006),
        )
        for _ in devices
    ]


def table(found: Cost | Size) -> str:
    if isinstance(found, Cost):
        return (
            "| GPUs | processor time of a second: looks | writes | of a core | a look, wall |\n"
            "|---|---|---|---|---|\n"
            f"| {found.gpus} | {found.look_ms:.2f} ms | {found.write_ms:.2f} ms | "
            f"{100 * found.share_of_core:.2f} % | {found.median_wall_of_look_ms:.2f} ms |"
        )
    return (
        "| GPUs | days | rows | SQLite |\n|---|---|---|---|\n"
        f"| {found.gpus} | {found.days:g} | {found.n_rows:,} | {found.sqlite_bytes / MB:.1f} MB |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the sampling of devices.")
    parser.add_argument("measure", choices=("cost", "size"))
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument(
        "--real", action="store_true", help="the GPUs of this machine, for the cost"
    )
    parser.add_argument("--seconds", type=int, default=3600, help="of the study, for the cost")
    parser.add_argument("--days", type=float, default=7.0, help="of the study, for the size")
    parser.add_argument("--output", type=Path, help="benchmark-sampling-MEASURE.json if absent")
    args = parser.parse_args()
    print(f"{this_machine()}, load {psutil.getloadavg()[0]:.1f}", flush=True)
    is_cost = args.measure == "cost"
    n_gpus = None if args.real else args.gpus
    found = measure_cost(n_gpus, args.seconds) if is_cost else measure_size(args.gpus, args.days)
    output = args.output or Path(f"benchmark-sampling-{args.measure}.json")
    packages = package_versions(Path(sys.executable), _PACKAGES)
    write_json(output, packages={"tuner": packages}, figures=asdict(found))
    print(f"\n{table(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
