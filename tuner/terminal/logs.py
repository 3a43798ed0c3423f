"""`tuner logs STUDY 17`: the output of one attempt of a trial, to its end or as it grows."""

from __future__ import annotations

import codecs
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import sqlalchemy as sa

from tuner.checkpoints.paths import StudyFiles
from tuner.errors import ConfigError, TunerError
from tuner.launch.log_limit import read_log
from tuner.queries.locate import Place, choose_study, reading
from tuner.queries.trials.attempts import StoredAttempt, read_attempts
from tuner.queries.uploads import fetch_log, read_uploads
from tuner.store.optuna_tables.statements import TRIALS
from tuner.store.records.upload_rows import StoredUpload
from tuner.store.schema.models import UploadKind

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_POLL_S = 0.5
_CHUNK_BYTES = 65536


def find_log(files: StudyFiles, trial: int, attempt: int | None, rank: int) -> Path:
    """Finds the log of an attempt; of the newest if none is given.

    Args:
        files: Paths of the study's files.
        trial: Number of the trial.
        attempt: Number of the attempt; None for the newest.
        rank: Rank of the process.

    Raises:
        ConfigError: If the trial has no such log; the message names those that exist.
    """
    attempts = files.attempts_of(trial)
    if not attempts:
        raise ConfigError(f"Trial {trial} of study {files.study!r} has no log in {files.root}.")
    if attempt is None:
        attempt = attempts[-1]
    elif attempt not in attempts:
        known = ", ".join(map(str, attempts))
        raise ConfigError(f"Trial {trial} has no attempt {attempt}. It has: {known}.")
    ranks = files.ranks_of(trial, attempt)
    if rank not in ranks:
        known = ", ".join(map(str, ranks))
        raise ConfigError(f"Trial {trial} has no log of rank {rank}. It has: {known}.")
    return files.log(trial, attempt, rank)


def locate_log(
    place: Place,
    files: StudyFiles,
    trial: int,
    attempt: int | None,
    rank: int,
    environ: Mapping[str, str],
) -> Path:
    """Finds a log here or, if the attempt ended on another machine, in the object store.

    Args:
        place: The study; a store is queried only with `checkpoints.store`.
        files: Paths of the study's files.
        trial: Number of the trial.
        attempt: Number of the attempt; None for the newest.
        rank: Rank of the process.
        environ: Credentials of the object store.

    Raises:
        TunerError: If the trial has no such log, or the store refuses it.
    """
    here = files.attempts_of(trial)
    if place.config is not None and place.config.checkpoints.store is not None:
        uploads = _uploaded_logs(place, trial, rank)
        newest = attempt if attempt is not None else max([*here, *uploads], default=0)
        if newest not in here and newest in uploads:
            return fetch_log(uploads[newest], environ)
    return find_log(files, trial, attempt, rank)


def _uploaded_logs(place: Place, trial: int, rank: int) -> dict[int, StoredUpload]:
    """By number of the attempt."""
    with reading(place) as (_, connection):
        trial_id = _trial_id(connection, place, trial)
        uploads = [] if trial_id is None else read_uploads(connection, trial_id, UploadKind.LOG)
    name = re.compile(r"attempt-(\d+)" + (rf"\.rank-{rank}" if rank else "") + r"\.log")
    return {int(found[1]): each for each in uploads if (found := name.fullmatch(each.name))}


def text_of_log(path: Path, n_last_lines: int | None = None) -> Iterator[str]:
    """Reads a log in pieces.

    Args:
        path: Path of the log.
        n_last_lines: Number of lines at its end; None for all of it.

    Raises:
        ConfigError: If it cannot be read.
    """
    yield from _last_lines(_decoded(path, read_log(path)), n_last_lines)


def follow_log(
    path: Path,
    is_over: Callable[[], bool],
    n_last_lines: int | None = None,
    *,
    wait: Callable[[float], None] = time.sleep,
) -> Iterator[str]:
    """Reads a log, and follows it until its attempt is over.

    Args:
        path: Path of the log.
        is_over: Whether the log is complete.
        n_last_lines: Number of existing lines to start with; None for all of them.
        wait: Sleeps for a number of seconds.

    Raises:
        ConfigError: If it cannot be read.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise _unreadable(path, error) from error
    yield from _last_lines(_decoded(path, read_log(path, until=size)), n_last_lines)
    yield from _decoded(path, _added(path, size, is_over, wait))


def is_attempt_over(place: Place, trial: int, log: Path) -> bool:
    """Whether the attempt of a log has ended, according to the database.

    Args:
        place: The study.
        trial: Number of the trial.
        log: The attempt's log.
    """
    try:
        with reading(place) as (_, connection):
            attempts = _attempts(connection, place, trial)
    except TunerError:
        return False  # It is locked or away now; the next look may tell.
    newest = max((each.number for each in attempts), default=0)
    return any(
        not each.is_open or each.number < newest
        for each in attempts
        if Path(each.log_path).name == log.name
    )


def _attempts(connection: sa.Connection, place: Place, trial: int) -> list[StoredAttempt]:
    trial_id = _trial_id(connection, place, trial)
    if trial_id is None:
        return []
    study = choose_study(connection, place)
    return read_attempts(connection, study.id, [trial_id]).get(trial_id, [])


def _trial_id(connection: sa.Connection, place: Place, trial: int) -> int | None:
    study = choose_study(connection, place)
    query = sa.select(TRIALS.c.trial_id).where(
        TRIALS.c.study_id == study.id, TRIALS.c.number == trial
    )
    return connection.execute(query).scalar()


def _added(
    path: Path, position: int, is_over: Callable[[], bool], wait: Callable[[float], None]
) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        file.seek(position)
        while True:
            # In this order: what was written before the end is there when the end is known.
            was_over = is_over()
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
            if was_over:
                return
            if os.fstat(file.fileno()).st_size < file.tell():
                file.seek(0, os.SEEK_END)  # It was shortened to its limit.
            wait(_POLL_S)


def _decoded(path: Path, chunks: Iterator[bytes]) -> Iterator[str]:
    decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
    try:
        for chunk in chunks:
            yield decode(chunk)
    except OSError as error:
        raise _unreadable(path, error) from error
    yield decode(b"", final=True)


def _last_lines(parts: Iterator[str], n_lines: int | None) -> Iterator[str]:
    if n_lines is None:
        yield from parts
        return
    kept: deque[str] = deque([""], maxlen=n_lines + 1)
    # A progress bar that returns to the beginning of its line is one line.
    for first, *others in filter(None, map(_LINE.findall, parts)):
        if kept[-1].endswith("\n"):
            kept.append(first)
        else:
            kept[-1] += first
        kept.extend(others)
    yield from list(kept)[-n_lines:] if n_lines else []


def _unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot be read: {error.strerror}.", file=str(path))
