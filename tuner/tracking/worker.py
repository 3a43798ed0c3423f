"""The process of one tracker: reads the study's database, writes runs, reports errors.

Standard input receives one line of JSON (`Job`), later possibly the notice that the study has
ended; it closes when the dispatcher ends in any way. Reports are written to a pipe, one line of
JSON each.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from sqlalchemy.exc import SQLAlchemyError

from tuner.config.sections.track import TrackerConfig
from tuner.errors import StoreError, TunerError
from tuner.search.by_name import Place
from tuner.store.connection.database import open_database
from tuner.tracking.port import TrackedStudy
from tuner.tracking.progress import ProgressFiles
from tuner.tracking.registry import make_tracker
from tuner.tracking.sync import Source, Sync, TrackerFailed

#: On standard input: the study has ended, write the rest.
FINISH = "finish"
_ROUND_EVERY_S = 2.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
#: Training has the processor first.
_NICENESS = 10
#: After the dispatcher was killed.
_LEAVING_S = 10.0
_PASSWORD = re.compile(r"(?<=://)[^/@\s]+(?=@)")
#: One try and one more: the next round is soon enough.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "WANDB_SILENT": "true",
    "WANDB_CONSOLE": "off",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The input of the process. It may contain a password and is sent through a pipe."""

    tracker: str
    target: str | None
    arguments: Mapping[str, object]
    storage: str
    study_id: int
    study: str
    study_key: str
    objectives: tuple[str, ...]
    dispatcher_id: int
    #: The study file's.
    folder: str
    #: Folder of progress files.
    state_folder: str

    def to_line(self) -> str:
        """For standard input."""
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Self:
        """The inverse of `to_line`."""
        content = json.loads(line)
        return cls(**{**content, "objectives": tuple(content["objectives"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Sent to the dispatcher after each round."""

    #: Trials that are not written to their end.
    n_behind: int
    #: The error of a failed round, in one line; else empty.
    problem: str = ""

    def to_line(self) -> str:
        """For the pipe."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """The inverse of `to_line`."""
        return cls(**json.loads(line))


def main() -> None:
    """Works until the study has ended and everything is written, or standard input closes."""
    reports = int(sys.argv[1])
    os.nice(_NICENESS)
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    job = Job.from_line(_first_line(sys.stdin.fileno()))
    threading.Thread(target=_end_with_dispatcher, daemon=True).start()
    _Worker(job, reports).work()
    # Threads of a library that waits for its server must not hold up the end.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _first_line(descriptor: int) -> str:
    """Reads no byte beyond the line, so that `select` sees the rest."""
    line = bytearray()
    while (byte := os.read(descriptor, 1)) not in (b"\n", b""):
        line += byte
    return line.decode()


def _end_with_dispatcher() -> None:
    """Ends this process some seconds after the dispatcher, also while a tracker hangs."""
    closed = select.poll()
    # No other event: what the dispatcher says is not for this thread.
    closed.register(sys.stdin.fileno(), 0)
    closed.poll()
    time.sleep(_LEAVING_S)
    os._exit(1)


class _Worker:
    def __init__(self, job: Job, reports: int) -> None:
        self._job = job
        self._reports = reports
        self._sync: Sync | None = None
        self._is_finishing = False
        self._pause_s = _FIRST_PAUSE_S

    def work(self) -> None:
        while True:
            # What ends until now is written in this round.
            is_last = self._is_finishing
            problem = self._round(is_last=is_last)
            n_behind = 1 if self._sync is None else self._sync.n_behind
            self._report(Report(n_behind=n_behind, problem=problem))
            if is_last and not problem:
                return
            self._listen(self._wait_s(problem))

    def _round(self, *, is_last: bool) -> str:
        """The problem of a round; empty without one."""
        try:
            self._sync = self._sync or self._open()
            self._sync.round()
            if is_last:
                self._sync.close()
        except TrackerFailed as error:
            traceback.print_exception(error.error)
            about = "" if error.trial is None else f"trial {error.trial}: "
            return self._in_words(about, error.error)
        except (SQLAlchemyError, StoreError) as error:
            return self._in_words("the study's database cannot be read: ", error)
        except TunerError as error:
            return self._in_words("", error)
        return ""

    def _open(self) -> Sync:
        job = self._job
        database = open_database(job.storage, read_only=True)
        folder = Path(job.folder)
        study = TrackedStudy(
            name=job.study, key=job.study_key, objectives=job.objectives, folder=folder
        )
        files = ProgressFiles(
            folder=Path(job.state_folder), tracker=job.tracker, study_key=job.study_key
        )
        source = Source(
            engine=database.engine,
            study_id=job.study_id,
            study=study,
            dispatcher_id=job.dispatcher_id,
            files=files,
        )
        config = TrackerConfig(target=job.target, arguments=job.arguments)
        place = Place(file=None, key=f"track.{job.tracker}")
        return Sync(source, lambda: make_tracker(job.tracker, config, place))

    def _wait_s(self, problem: str) -> float:
        if not problem:
            self._pause_s = _FIRST_PAUSE_S
            return 0.0 if self._is_finishing else _ROUND_EVERY_S
        wait_s = self._pause_s
        self._pause_s = min(2 * wait_s, _LONGEST_PAUSE_S)
        return _FIRST_PAUSE_S if self._is_finishing else wait_s

    def _listen(self, wait_s: float) -> None:
        """Lets time pass, or less if the study ends; does not return if the dispatcher ends."""
        until_s = time.monotonic() + wait_s
        while True:
            left_s = max(0.0, until_s - time.monotonic())
            readable, _, _ = select.select([sys.stdin], [], [], left_s)
            if not readable:
                return
            if not os.read(sys.stdin.fileno(), 1024):
                self._leave()
            self._is_finishing = True
            return

    def _leave(self) -> None:
        """After the dispatcher's end: flushes buffered data, but writes nothing new."""
        with suppress(TrackerFailed):
            if self._sync is not None:
                self._sync.close()
        os._exit(1)

    def _report(self, report: Report) -> None:
        os.write(self._reports, report.to_line().encode())

    def _in_words(self, about: str, error: BaseException) -> str:
        first = next(iter(str(error).splitlines()), "") or type(error).__name__
        return _PASSWORD.sub("***", f"{about}{first}")[:500]


if __name__ == "__main__":
    main()
