"""Whoever types the same command again when it has ended: a supervisor of dispatchers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.proxy import Proxy

#: In the environment of all that a keeper's dispatcher has started.
KEEPER_ENV = "CHAOS_KEEPER"
RUN = (sys.executable, "-m", "tuner.run", "study.yaml")
_MAY_END_S = 10.0


def on_host(name: str) -> Sequence[str]:
    """What to put before a command so that it takes this machine for another one."""
    shell = 'hostname "$0" && exec "$@"'
    return ("unshare", "--uts", "sh", "-c", shell, name)


def in_container() -> Sequence[str]:
    """Likewise, so that it has a PID namespace of its own, whose first process it is.

    As in a container that shares the host's name (`docker run --network host`): it sees none of
    the processes outside, and with it all that it has started ends.
    """
    return ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@dataclass(kw_only=True)
class Keeper:
    """Keeps one dispatcher running.

    Args:
        name: For file names.
        folder: Where the command is typed.
        env: Its environment.
        prefix: Before the command.
        proxy: Between it and its database; None where it is connected without one.
        words: After the command.
    """

    name: str
    folder: Path
    env: Mapping[str, str]
    prefix: Sequence[str] = ()
    proxy: Proxy | None = None
    words: Sequence[str] = ()
    #: Exit codes, in their order.
    codes: list[int] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        stem = self.folder.with_name(f"{self.name}-{len(self.codes)}")
        out_file, err_file = stem.with_suffix(".out"), stem.with_suffix(".err")
        with out_file.open("wb") as out, err_file.open("wb") as err:
            self.process = subprocess.Popen(
                [*self.prefix, *RUN, *self.words],
                cwd=self.folder,
                env={**self.env, KEEPER_ENV: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def poll(self) -> int | None:
        """Whether it has ended, and how: None while it runs."""
        if self.process is None:
            return self.codes[-1]
        code = self.process.poll()
        if code is not None:
            self.codes.append(code)
            self.process = None
        return code

    def wait(self, timeout_s: float) -> None:
        """Until it has ended by itself.

        Raises:
            subprocess.TimeoutExpired: If it has not.
        """
        if self.process is not None:
            self.process.wait(timeout_s)

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def _mark(self) -> str:
        return f"{self.folder}:{self.name}"

    @property
    def dispatcher(self) -> psutil.Process | None:
        """The dispatcher itself; what `unshare` has forked, where that is in between."""
        if self.process is None:
            return None
        with suppress(psutil.Error):
            started = psutil.Process(self.process.pid)
            if "--fork" not in self.prefix:
                return started
            return next(iter(started.children()), None)
        return None

    def has_started(self, pid: int) -> bool:
        """Whether this process comes from the present dispatcher and not from an earlier one."""
        dispatcher = self.dispatcher
        with suppress(psutil.Error):
            return dispatcher is not None and dispatcher in psutil.Process(pid).parents()
        return False

    def signal(self, number: signal.Signals) -> bool:
        """To the dispatcher alone; says whether it was there."""
        dispatcher = self.dispatcher
        with suppress(psutil.Error):
            if dispatcher is not None:
                dispatcher.send_signal(number)
                return True
        return False

    def signal_all(self, number: signal.Signals) -> int:
        """To every process that this start has brought about; says how many there were."""
        pids = processes_with(KEEPER_ENV, self._mark)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return len(pids)

    def child(self, word: str) -> int | None:
        """The pid of a process that the dispatcher has started, by a word of its command."""
        dispatcher = self.dispatcher
        with suppress(psutil.Error):
            for child in dispatcher.children() if dispatcher else ():
                if any(word in part for part in child.cmdline()):
                    return child.pid
        return None

    @property
    def outputs(self) -> list[Path]:
        """What each start has printed, both streams."""
        files = self.folder.parent.glob(f"{self.name}-*.*")
        return sorted(path for path in files if path.suffix in (".out", ".err"))

    def end(self) -> None:
        """Ends what is left of it after an accident of the runner."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(_MAY_END_S)


def processes_with(variable: str, value: str) -> list[int]:
    """Everything that was started with this in its environment, and is alive."""
    word = f"{variable}={value}".encode()
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            words = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            if word in words and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found
