"""Start a system, wait for it, and leave nothing of it behind."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "TUNER_BENCHMARK_FOLDER"
GRACE_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended. `exit_code` is None where its time was up."""

    exit_code: int | None
    began_ns: int
    wall_s: float


@contextmanager
def started(
    command: Sequence[str], *, folder: Path, env: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own, with its output in `output.log`."""
    with (folder / "output.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**env, MARK: str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)
        _end_all(_marked(folder))


def run(command: Sequence[str], *, folder: Path, env: Mapping[str, str], limit_s: float) -> Ended:
    """Run a command to its end, from before its start to after its exit."""
    began_ns = time.monotonic_ns()
    with started(command, folder=folder, env=env) as process:
        try:
            exit_code: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            exit_code = None
        wall_s = (time.monotonic_ns() - began_ns) / 1e9
    return Ended(exit_code=exit_code, began_ns=began_ns, wall_s=wall_s)


def last_lines(folder: Path, count: int = 5) -> str:
    return "\n".join((folder / "output.log").read_text(errors="replace").splitlines()[-count:])


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    if process.poll() is None:
        process.kill()
        process.wait()


def _marked(folder: Path) -> list[psutil.Process]:
    """Whatever still carries the mark of this run: servers that a system left running."""
    return [
        process
        for process in psutil.process_iter()
        if process.pid != os.getpid() and _mark_of(process) == str(folder)
    ]


def _mark_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK)
    except (psutil.Error, OSError):
        return None


def _end_all(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=GRACE_S)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=GRACE_S)
