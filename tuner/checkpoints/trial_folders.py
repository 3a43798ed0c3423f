"""Which trial a folder of logs and checkpoints belongs to.

A folder is found by the name of its study and the number of its trial. Both come back when a
database is deleted, replaced or restored from a backup. Each folder therefore holds a file that
identifies its trial, and a folder of another trial is moved aside before an attempt starts.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tuner.checkpoints.layout import IDENTITY_NAME
from tuner.checkpoints.paths import StudyFiles

_STUDY_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyKey:
    """Identifies a study, whatever its name, its row and its database.

    Args:
        id: 32 random hexadecimal digits; copies of a database share them.
        adopts_below: Trials with lower numbers may have begun before studies had an identity: their
            folders need no identity file.
    """

    id: str
    adopts_below: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialKey:
    """Identifies a trial, as its database describes it.

    Args:
        study: Study of the trial.
        number: Number of the trial in its study.
        begun_at: When the first attempt got its devices; None before that. A database that is
            restored from a backup gives a number again, but never this instant.
        params: Parameters of the trial, as far as they are known.
    """

    study: StudyKey
    number: int
    begun_at: datetime | None = None
    params: Mapping[str, object] | None = None

    @property
    def may_lack_file(self) -> bool:
        """Whether the trial began before folders had identity files."""
        return self.begun_at is not None and self.number < self.study.adopts_below


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Content of an identity file.

    Args:
        study: Random id of the study; "unknown" if the file is damaged.
        trial: Number of the trial.
        begun_at: Instant in ISO format; None while a copied checkpoint waits for the first attempt.
        params: Parameters at the start of the attempt that wrote the file.
    """

    study: str
    trial: int
    begun_at: str | None
    params: Mapping[str, object]

    def is_of(self, key: TrialKey) -> bool:
        """Whether the file identifies this trial."""
        if (self.study, self.trial) != (key.study.id, key.number):
            return False
        is_same_start = self.begun_at is None or self.begun_at == _text_of(key.begun_at)
        return is_same_start and _agree(self.params, key.params or {})


UNKNOWN = "unknown"
_UNREADABLE = Mark(study=UNKNOWN, trial=-1, begun_at=None, params={})


def read_mark(folder: Path) -> Mark | None:
    """The content of a folder's identity file; None if there is no such file.

    Raises:
        OSError: If the file cannot be read.
    """
    try:
        content = json.loads((folder / IDENTITY_NAME).read_bytes())
        mark = Mark(**content)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError):
        return _UNREADABLE
    return mark if is_study_id(mark.study) and isinstance(mark.params, dict) else _UNREADABLE


def is_study_id(text: object) -> bool:
    """Whether a value from a file is the random id of a study."""
    return isinstance(text, str) and _STUDY_ID.fullmatch(text) is not None


def belongs_to(folder: Path, key: TrialKey) -> bool:
    """Whether a folder holds files of a trial.

    Raises:
        OSError: If the folder cannot be read.
    """
    mark = read_mark(folder)
    return key.may_lack_file if mark is None else mark.is_of(key)


def locate(folder: Path, key: TrialKey) -> Path | None:
    """Path of a trial's files: its folder, or the one to which they were moved aside.

    Args:
        folder: Folder of the trial in the database.
        key: Identifies the trial.

    Returns:
        None if the folder belongs to another trial and nothing of this one was moved aside.
    """
    with suppress(OSError):
        if belongs_to(folder, key):
            return folder
        return next(_moved_aside(folder, key), None)
    return None


def free_name(folder: Path) -> Path:
    """`folder` itself, or with the first number behind it that is not in use."""
    number, found = 1, folder
    while os.path.lexists(found):
        found, number = folder.with_name(f"{folder.name}.{number}"), number + 1
    return found


class TrialFolders:
    """Separates the folders of a study's trials from those of other studies and trials.

    Args:
        files: Paths of the study's files.
        study: Identifies the study.
    """

    def __init__(self, files: StudyFiles, study: StudyKey) -> None:
        self._files = files
        self._study = study
        #: Trials whose folder could not be prepared because of an error, by number.
        self._unready: dict[int, TrialKey] = {}
        #: By number: when the first attempt of a trial began.
        self._begun: dict[int, datetime] = {}

    def prepare(
        self, number: int, begun_at: datetime | None, params: Mapping[str, object], *, fills: bool
    ) -> str:
        """Prepares the folder of a trial, before anything looks for checkpoints in it.

        Args:
            number: Number of the trial.
            begun_at: When its first attempt began; None if there was none.
            params: Parameters of the trial.
            fills: Whether a copied checkpoint is put into the folder before the first attempt.

        Returns:
            A message if files of another trial were moved aside; else empty. An error is kept, and
            raised by `begin`.
        """
        key = TrialKey(study=self._study, number=number, begun_at=begun_at, params=params)
        if begun_at is not None:
            self._begun[number] = begun_at
        try:
            note = self._make_ready(key)
            if fills:
                self._write(key)
        except OSError:
            self._unready[number] = key
            return ""
        self._unready.pop(number, None)
        return note

    def begin(self, number: int, begins_at: datetime | None, params: Mapping[str, object]) -> None:
        """Makes the folder of a trial with its identity file, before an attempt starts.

        Args:
            number: Number of the trial.
            begins_at: Instant of the lease, as the database has it, for the first attempt; None for
                a later one.
            params: Parameters of the trial.

        Raises:
            OSError: If the folder cannot be made, or holds files that cannot be moved aside.
        """
        if (unready := self._unready.get(number)) is not None:
            self._make_ready(unready)
            del self._unready[number]
        folder = self._files.trial(number)
        folder.mkdir(parents=True, exist_ok=True)
        if begins_at is not None:
            self._begun[number] = begins_at
        elif (folder / IDENTITY_NAME).exists():
            return
        begun_at = self._begun.get(number)
        self._write(TrialKey(study=self._study, number=number, begun_at=begun_at, params=params))

    def begun_at(self, number: int, stored: Callable[[], datetime | None]) -> datetime | None:
        """When the first attempt of a trial began; None if there was none.

        Args:
            number: Number of the trial.
            stored: Reads it from the database; called until it returns a time.
        """
        if (begun_at := self._begun.get(number) or stored()) is not None:
            self._begun[number] = begun_at
        return begun_at

    def _make_ready(self, key: TrialKey) -> str:
        folder = self._files.trial(key.number)
        if not os.path.lexists(folder):
            return self._bring_back(key)
        if belongs_to(folder, key) or _is_empty(folder):
            return ""
        mark = read_mark(folder)
        aside = free_name(self._files.moved_aside / f"{folder.name}.1")
        aside.parent.mkdir(exist_ok=True)
        folder.rename(aside)
        self._bring_back(key)
        return (
            f"Trial {key.number}: {folder} held {_described(mark, key)}. They were moved to "
            f"{aside} and are not used."
        )

    def _bring_back(self, key: TrialKey) -> str:
        """Takes back files that were moved aside while another trial had the folder."""
        folder = self._files.trial(key.number)
        own = next(_moved_aside(folder, key), None)
        if own is None:
            return ""
        own.rename(folder)
        return f"Trial {key.number}: its files were moved back from {own}."

    def _write(self, key: TrialKey) -> None:
        folder = self._files.trial(key.number)
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "study": key.study.id,
            "trial": key.number,
            "begun_at": _text_of(key.begun_at),
            "params": dict(key.params or {}),
        }
        write_whole(folder / IDENTITY_NAME, json.dumps(content, indent=1, default=str) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Replaces a small file; a reader sees the old content or the new one."""
    partial = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}")
    try:
        partial.write_text(text)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _moved_aside(folder: Path, key: TrialKey) -> Iterator[Path]:
    """Folders of a trial that has begun, among those that were moved aside."""
    if key.begun_at is None:
        return
    aside = StudyFiles.moved_aside_below(folder.parent)
    of_study = aside / key.study.id / folder.name
    for found in (of_study, *aside.glob(f"{folder.name}.*")):
        mark = read_mark(found)
        if mark is None:
            is_own = found == of_study and found.is_dir() and key.may_lack_file
        else:
            is_own = mark.begun_at is not None and mark.is_of(key)
        if is_own:
            yield found


def _is_empty(folder: Path) -> bool:
    try:
        return next(folder.iterdir(), None) is None
    except (FileNotFoundError, NotADirectoryError):
        return False


def _described(mark: Mark | None, key: TrialKey) -> str:
    if mark is None or mark is _UNREADABLE:
        return "files that do not say which trial wrote them"
    if mark.study != key.study.id:
        return "files of another study of this name"
    return (
        "files of an earlier trial of this number that the database does not know (it was probably "
        "restored from a backup)"
    )


def _text_of(instant: datetime | None) -> str | None:
    return None if instant is None else instant.isoformat(timespec="microseconds")


def _agree(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Whether common parameters are equal, apart from rounding by a database."""
    return all(_is_same(one[name], other[name]) for name in one.keys() & other.keys())


def _is_same(one: object, other: object) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other or math.isclose(one, other, rel_tol=1e-9)
    return json.dumps(one, default=str) == json.dumps(other, default=str)
