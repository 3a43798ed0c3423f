"""Which study owns the folder `tuner-files/<study>`.

A study of the same name in another database (or in a new one, after the old one was deleted) uses
the same folder. A file in the folder names its owner; files of another study are moved aside, and
back when that study is started again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from pathlib import Path

from tuner.checkpoints.layout import IDENTITY_NAME
from tuner.checkpoints.paths import OWNER_NAME, StudyFiles
from tuner.checkpoints.trial_folders import (
    UNKNOWN,
    StudyKey,
    free_name,
    is_study_id,
    read_mark,
    write_whole,
)
from tuner.errors import ConfigError

_LOCK_NAME = ".lock"
#: Names of the files that identify a folder's owner.
NOTES = frozenset({_LOCK_NAME, OWNER_NAME, IDENTITY_NAME})
#: Dispatchers that start at the same moment hold the shared lock while they read the owner file.
_PATIENCE_S = 5.0
#: A dispatcher that prepares the folder renames and syncs files, which is slow on a busy or remote
#: disk.
_TAKE_OVER_PATIENCE_S = 60.0
_RETRY_S = 0.05


class StudyFolder:
    """Claims the folder of a study, as long as this process works on the study.

    All dispatchers of one study share the folder. A record lock keeps a study of another database
    from moving files that are in use.

    Args:
        files: Paths of the study's files.
        study: Identifies the study.
        has_begun: Whether any attempt of the study is in the database.

    Raises:
        ConfigError: If a study of this name in another database uses the folder now, or the folder
            is not writable.
    """

    def __init__(self, files: StudyFiles, study: StudyKey, *, has_begun: bool) -> None:
        self._files = files
        self._study = study
        self._adopts = has_begun and study.adopts_below > 0
        self._lock: int | None = None
        #: Files that were moved, as text; empty if none were.
        self.note = ""
        try:
            files.root.mkdir(parents=True, exist_ok=True)
            self._lock = _open_lock(files.root / _LOCK_NAME)
            self._claim()
        except OSError as error:
            self.close()
            problem = f"Files go to {files.root}, which cannot be used: {error.strerror}."
            raise ConfigError(f"{problem} Make that folder writable.") from error
        except ConfigError:
            self.close()
            raise

    def close(self) -> None:
        """Lets studies of other databases have the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _claim(self) -> None:
        begun_s = time.monotonic()
        while True:
            can_read = self._try_lock(fcntl.LOCK_SH)
            if can_read and self._is_ours():
                return
            self._unlock()
            if self._try_lock(fcntl.LOCK_EX):
                self._take_over()
                continue
            waited_s = time.monotonic() - begun_s
            # The exclusive lock may be held by a dispatcher of this study.
            if can_read and waited_s >= _PATIENCE_S:
                raise self._in_use()
            if not can_read and waited_s >= _TAKE_OVER_PATIENCE_S:
                raise self._being_prepared()
            time.sleep(_RETRY_S)

    def _in_use(self) -> ConfigError:
        return ConfigError(
            "A study of this name in another database is running and has its files in "
            f"{self._files.root}. Wait for its end, or use another name: --study NEW_NAME."
        )

    def _being_prepared(self) -> ConfigError:
        return ConfigError(
            f"Another dispatcher has been preparing {self._files.root} for "
            f"{_TAKE_OVER_PATIENCE_S:g} s. Its disk may be slow or hang. Start the same command "
            "again when the disk answers."
        )

    def _is_ours(self) -> bool:
        is_ours = read_owner(self._files) == self._study.id
        return is_ours and not (self._files.moved_aside / self._study.id).exists()

    def _take_over(self) -> None:
        owner = read_owner(self._files)
        n_moved = 0
        places: set[Path] = set()
        for number in self._files.trials():
            folder = self._files.trial(number)
            of = self._owner_of(folder, owner)
            if of != self._study.id:
                places.add(_move(folder, self._files.moved_aside / of))
                n_moved += 1
        write_whole(self._files.owner_file, json.dumps({"study": self._study.id}) + "\n")
        _sync(self._files.owner_file)
        n_back = self._bring_back()
        self.note = self.note or _told(self._files.root, n_moved, places, n_back)

    def _owner_of(self, folder: Path, owner: str | None) -> str:
        mark = read_mark(folder)
        if mark is not None:
            return mark.study
        if owner is None and self._adopts:
            return self._study.id
        return owner or UNKNOWN

    def _bring_back(self) -> int:
        own = self._files.moved_aside / self._study.id
        n_back = 0
        for folder in own.glob("trial-*"):
            if not os.path.lexists(self._files.root / folder.name):
                folder.rename(self._files.root / folder.name)
                n_back += 1
        if own.is_dir():
            # Folders that are not wanted back stay, under a name that is not looked for again.
            with contextlib.suppress(OSError):
                own.rmdir()
            if own.exists():
                own.rename(free_name(own.with_name(f"{own.name}.1")))
        return n_back

    def _try_lock(self, kind: int) -> bool:
        if self._lock is None:
            return True
        try:
            fcntl.lockf(self._lock, kind | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        except OSError:
            return True  # A disk without locks.
        return True

    def _unlock(self) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                fcntl.lockf(self._lock, fcntl.LOCK_UN)


def read_owner(files: StudyFiles) -> str | None:
    """The random id of the study that owns a folder; None if no owner is recorded.

    Raises:
        OSError: If the folder cannot be read.
    """
    try:
        content = json.loads(files.owner_file.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    study = content.get("study") if isinstance(content, dict) else None
    return study if is_study_id(study) else None


def own_files(files: StudyFiles, study_id: str | None) -> list[Path]:
    """Folders and files of one study, without those of other studies of its name.

    Args:
        files: Paths of the study's files.
        study_id: Random id of the study; None if only versions without ids have started it.

    Raises:
        OSError: If the folder cannot be read.
    """
    owner = read_owner(files)
    found: list[Path] = []
    if files.root.is_dir() and owner in (None, study_id):
        found += [each for each in files.root.iterdir() if each != files.moved_aside]
    if study_id is not None and files.moved_aside.is_dir():
        found += [each for each in files.moved_aside.iterdir() if _is_of(each, study_id)]
    return sorted(found)


def _is_of(aside: Path, study_id: str) -> bool:
    mark = read_mark(aside)
    return aside.name.startswith(study_id) if mark is None else mark.study == study_id


def _open_lock(path: Path) -> int:
    """A record lock, which forked processes do not inherit."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _move(folder: Path, place: Path) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    folder.rename(free_name(place / folder.name))
    return place


def _told(root: Path, n_moved: int, places: set[Path], n_back: int) -> str:
    told = []
    if n_moved:
        trials = "1 trial" if n_moved == 1 else f"{n_moved} trials"
        where = ", ".join(sorted(map(str, places)))
        told.append(
            f"{root} held files of {trials} of another study of this name (from another database, "
            f"or deleted since). They were moved to {where} and are not used."
        )
    if n_back:
        trials = "1 trial" if n_back == 1 else f"{n_back} trials"
        told.append(f"Files of {trials} of this study were moved back from {root}/moved-aside.")
    return " ".join(told)


def _sync(path: Path) -> None:
    for each in (path, path.parent):
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
