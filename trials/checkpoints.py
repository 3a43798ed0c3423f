"""Saves and finds the states of one trial: whole ones only, the newest few kept."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from trials.background import Background
from trials.states import copy_to_cpu, refuse_unloadable, refuse_unloadable_values
from tuner import checkpoint_files

#: The newest one may be torn by a disk that filled up; the one before it is then still there.
N_NEWEST = 2


class CheckpointFolder:
    """The checkpoints of one trial in one folder.

    Args:
        path: The folder; made when the first state is saved.
        n_newest: How many are kept.
    """

    def __init__(self, path: Path, n_newest: int = N_NEWEST) -> None:
        self._path = path
        self._n_newest = n_newest
        self._background = Background()
        self._has_identity = False

    @property
    def path(self) -> Path:
        self._path.mkdir(parents=True, exist_ok=True)
        return self._path

    def file_of(self, step: int) -> Path:
        """Where the state of a step is or would be; nothing is made."""
        return checkpoint_files.file_of(self._path, step)

    # -- saving ------------------------------------------------------------------------------

    def save(self, state: Mapping[str, Any], step: int) -> Path:
        """Writes beside the final name, syncs, renames: a reader sees all of it or nothing."""
        self.wait()
        return self._write(state, step)

    def begin_save(self, state: Mapping[str, Any], step: int) -> Path:
        """Copies the state and writes the copy in a thread; `wait` tells how that ended."""
        self.wait()
        refuse_unloadable_values(state)
        copy = copy_to_cpu(dict(state))
        self._background.begin(lambda: self._write(copy, step))
        return self.file_of(step)

    def save_sharded(self, state: Mapping[str, Any], step: int, rank: int) -> Path:
        """Every rank writes its own parts, into one folder; all must call it."""
        from trials.sharded import save_sharded

        self.wait()
        final = checkpoint_files.sharded_of(self._path, step)
        save_sharded(dict(state), final, is_main=rank == 0)
        if rank == 0:
            self._remove_old()
        return final

    @property
    def is_busy(self) -> bool:
        """Whether something was begun whose end nobody has heard of yet."""
        return self._background.is_busy

    def wait(self) -> None:
        """Until what was begun is on disk. Raises what went wrong there."""
        self._background.wait()

    def settle(self) -> BaseException | None:
        """Likewise; what went wrong is given back."""
        return self._background.settle()

    def _write(self, state: Mapping[str, Any], step: int) -> Path:
        self._path.mkdir(parents=True, exist_ok=True)
        self._sync_identity()
        for left in checkpoint_files.leftovers(self._path):
            _remove(left)
        final = self.file_of(step)
        partial = final.with_suffix(f".partial-{os.getpid()}")
        try:
            with partial.open("wb") as file:
                _save(dict(state), file)
                file.flush()
                os.fsync(file.fileno())
            refuse_unloadable(partial)
            partial.replace(final)
        finally:
            partial.unlink(missing_ok=True)
        checkpoint_files.sync_folder(self._path)
        self._remove_old()
        return final

    def _sync_identity(self) -> None:
        """Before the first state: after a power cut it must be known whose it is."""
        if not self._has_identity:
            checkpoint_files.sync_identity(self._path)
            self._has_identity = True

    def _remove_old(self) -> None:
        for old in checkpoint_files.newest_first(self._path)[self._n_newest :]:
            _remove(old)

    # -- loading -----------------------------------------------------------------------------

    def load(self) -> dict[str, Any] | None:
        """The newest state that can be read, or None. Unpickles tensors and plain values only."""
        self.wait()
        for path in checkpoint_files.newest_first(self._path):
            try:
                return load_state(path)
            except (OSError, RuntimeError, EOFError, pickle.UnpicklingError):
                continue
        return None

    def load_into(self, state: dict[str, Any]) -> dict[str, Any] | None:
        """Fills a state with the newest whole one that ranks wrote together, or gives None.

        Raises:
            RuntimeError: If a key of it is not in the checkpoint.
            ValueError: If a tensor has another shape there.
        """
        from trials.sharded import is_complete, load_into

        self.wait()
        for path in checkpoint_files.newest_first(self._path):
            if path.is_dir() and is_complete(path):
                load_into(path, state)
                return state
        return None


def load_state(path: Path) -> dict[str, Any]:
    """One checkpoint, its tensors whole and on the CPU.

    Raises:
        OSError, RuntimeError, EOFError, pickle.UnpicklingError: If it is torn or something else.
    """
    import torch

    if path.is_dir():
        from trials.sharded import load_whole

        return load_whole(path)
    return dict(torch.load(path, map_location="cpu", weights_only=True))


def _save(state: dict[str, Any], file: IO[bytes]) -> None:
    import torch

    try:
        torch.save(state, file)
    except RuntimeError as error:
        # What torch says of a file that could not be written hides why: no room, most often.
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
