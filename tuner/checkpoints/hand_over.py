"""Copies of checkpoints from one trial to another: hard links, complete or absent.

Until its trial starts, a copy is kept in the folder of the replaced trial, outside the checkpoints
that are rotated or removed by a rule, so that no running trial can overwrite or remove it. A link
costs no space and no time; a checkpoint is never modified once it has its name, so two names of one
file are as good as two copies. If the file system has no links, the content is copied.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tuner.checkpoints.layout import (
    all_whole,
    is_whole,
    newest_whole,
    remove,
    step_of,
    sync_folder,
)
from tuner.checkpoints.paths import StudyFiles

#: Retries: a running trial removes older checkpoints during the scan.
_N_LOOKS = 5


class StateCopies:
    """Copies checkpoints from one trial to another.

    Args:
        files: Paths of the study's files.
        is_own: Whether the folder of a trial, by number, holds that trial's files. A database
            restored from a backup assigns numbers again.
    """

    def __init__(
        self, files: StudyFiles, is_own: Callable[[int], bool] = lambda _number: True
    ) -> None:
        self._files = files
        self._is_own = is_own

    def has_state(self, number: int) -> bool:
        """Whether a trial has saved something to continue from, which can be seen here."""
        return newest_whole(self._files.checkpoints(number)) is not None and self._is_own(number)

    def take(self, parent: int, replaced: int) -> int | None:
        """Copies a trial's whole checkpoints: the newest, and older ones in case it is damaged.

        Args:
            parent: Number of that trial, which may be running.
            replaced: Number of the trial in whose folder the copy is kept.

        Returns:
            The step of the newest; None if there is none here, or if a folder holds the files of
            another trial.
        """
        if not (self._is_own(parent) and self._is_own(replaced)):
            return None
        for _ in range(_N_LOOKS):
            whole = all_whole(self._files.checkpoints(parent))
            if not whole:
                return None
            try:
                self._keep(whole, self._files.handed_on(replaced))
            except FileNotFoundError:
                continue
            return step_of(whole[0])
        return None

    def is_here(self, replaced: int) -> bool:
        """Whether a trial's folder has a copy."""
        return newest_whole(self._files.handed_on(replaced)) is not None and self._is_own(replaced)

    def give(self, replaced: int, child: int) -> int | None:
        """Gives the copy to its trial, if that has no checkpoint yet.

        Idempotent, and safe to repeat after an interruption.

        Returns:
            The step of the trial's newest whole checkpoint; None for none.
        """
        folder, source = self._files.checkpoints(child), self._files.handed_on(replaced)
        copies = all_whole(source) if self._is_own(replaced) else []
        if copies and newest_whole(folder) is None:
            folder.mkdir(parents=True, exist_ok=True)
            # The newest first: where this is cut off, the older ones are not missed.
            for copy in copies:
                if (torn := folder / copy.name).is_dir():
                    shutil.rmtree(torn)
                copy.rename(folder / copy.name)
            sync_folder(folder)
        self.drop(replaced)
        newest = newest_whole(folder)
        return None if newest is None else step_of(newest)

    def drop(self, replaced: int) -> None:
        """Removes a copy that is no longer needed."""
        if self._is_own(replaced):
            shutil.rmtree(self._files.handed_on(replaced), ignore_errors=True)

    def _keep(self, checkpoints: Sequence[Path], target: Path) -> None:
        """Links checkpoints into a folder.

        Args:
            checkpoints: The newest first.
            target: The folder of the copies.

        Raises:
            FileNotFoundError: If the newest has been removed meanwhile; then nothing is left.
        """
        partial = target.with_name(f"{target.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            for checkpoint in checkpoints:
                try:
                    _link(checkpoint, partial / checkpoint.name)
                except FileNotFoundError:
                    if checkpoint == checkpoints[0]:
                        raise
                    remove(partial / checkpoint.name)
            sync_folder(partial)
        except FileNotFoundError:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        # Of an attempt that was lost while it was being stopped.
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
        sync_folder(target.parent)


def _link(source: Path, target: Path) -> None:
    if not source.is_dir():
        _link_file(source, target)
        return
    target.mkdir()
    for parent, folders, names in os.walk(source, onerror=_raise):
        inside = target / Path(parent).relative_to(source)
        for name in folders:
            (inside / name).mkdir()
        for name in names:
            _link_file(Path(parent) / name, inside / name)
    if not is_whole(target):
        # Its owner has removed some of it meanwhile.
        raise FileNotFoundError(source)
    shutil.copystat(source, target)


def _link_file(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copy2(source, target)


def _raise(error: OSError) -> None:
    raise error
