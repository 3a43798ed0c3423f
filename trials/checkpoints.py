"""Saves and finds the states of one trial: whole ones only, the newest few kept."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

from tuner.checkpoints import layout
from tuner.trials.saving import folders
from tuner.trials.saving.background import Background
from tuner.trials.saving.states import (
    copy_to_cpu,
    refuse_other_than_mapping,
    refuse_unloadable,
    refuse_unloadable_values,
    with_checksums,
)

_T = TypeVar("_T")

#: The newest one may be torn by a disk that filled up; the one before it is then still there.
N_NEWEST = 2


class CheckpointFolder:
    """The checkpoints of one trial in one folder.

    Args:
        path: The folder; created when the first checkpoint is saved.
        n_newest: Number of checkpoints to keep.
        attempt_number: Number of the saving attempt; 0 outside of the tuner.
    """

    def __init__(self, path: Path, n_newest: int = N_NEWEST, attempt_number: int = 0) -> None:
        self._path = path
        self._n_newest = n_newest
        self._background = Background()
        self._attempt_number = attempt_number
        self._has_identity = False
        #: Called with the damaged checkpoints, and the step of the one loaded instead, or None.
        self.on_damage: Callable[[Sequence[Path], int | None], None] | None = None

    @property
    def path(self) -> Path:
        self._path.mkdir(parents=True, exist_ok=True)
        return self._path

    def file_of(self, step: int) -> Path:
        """Path of the checkpoint of a step; nothing is created."""
        return layout.file_of(self._path, step)

    # -- saving ------------------------------------------------------------------------------

    def save(self, state: Mapping[str, Any], step: int) -> Path:
        """Writes a temporary file, syncs and renames it: readers see all of it or nothing."""
        refuse_other_than_mapping(state)
        self.wait()
        return self._write(state, step)

    def begin_save(self, state: Mapping[str, Any], step: int) -> Path:
        """Copies the state and writes the copy in a thread; `wait` raises its errors."""
        refuse_other_than_mapping(state)
        self.wait()
        refuse_unloadable_values(state)
        copy = copy_to_cpu(dict(state))
        self._background.begin(lambda: self._write(copy, step))
        return self.file_of(step)

    def save_sharded(self, state: Mapping[str, Any], step: int, rank: int) -> Path:
        """Every rank writes its own parts, into one folder; all must call it."""
        from tuner.trials.sharded import save_sharded

        self.wait()
        final = layout.sharded_of(self._path, step)
        if rank == 0:
            self._path.mkdir(parents=True, exist_ok=True)
            self._sync_identity()
        writer = f"{self._attempt_number}-ranks"
        save_sharded(dict(state), final, writer, is_main=rank == 0)
        if rank == 0:
            self._remove_old()
        return final

    @contextlib.contextmanager
    def new(self, step: int, rank: int, meet: Callable[[], None]) -> Iterator[Path]:
        """A folder that becomes the checkpoint of a step when the block has ended.

        Args:
            step: The step.
            rank: Rank of this process; rank 0 makes the folder and renames it.
            meet: Waits for all ranks.
        """
        self.wait()
        final = layout.sharded_of(self._path, step)
        partial = layout.partial_of(final, f"{self._attempt_number}-files")
        if rank == 0:
            self._path.mkdir(parents=True, exist_ok=True)
            self._sync_identity()
            layout.remove(partial)
            partial.mkdir()
        meet()
        try:
            yield partial
        except BaseException:
            if rank == 0:
                layout.remove(partial)
            raise
        meet()
        if rank == 0:
            folders.write_list(partial)
            replaced = layout.replaced_of(final, f"{self._attempt_number}-files")
            folders.rename(partial, final, replaced)
            self._remove_old()
        meet()

    @property
    def is_busy(self) -> bool:
        """Whether a save was started whose result was not read yet."""
        return self._background.is_busy

    def wait(self) -> None:
        """Waits until the started save is on disk. Raises its error."""
        self._background.wait()

    def settle(self) -> BaseException | None:
        """Like `wait`, but returns the error."""
        return self._background.settle()

    def _write(self, state: Mapping[str, Any], step: int) -> Path:
        self._path.mkdir(parents=True, exist_ok=True)
        self._sync_identity()
        final = self.file_of(step)
        # Of this process alone: a host that was cut off may continue saving in the same folder.
        writer = f"{self._attempt_number}-{socket.gethostname()}-{os.getpid()}"
        partial = layout.partial_of(final, writer)
        try:
            with partial.open("wb") as file:
                _save(dict(state), file)
                file.flush()
                os.fsync(file.fileno())
            refuse_unloadable(partial)
            partial.replace(final)
        finally:
            partial.unlink(missing_ok=True)
        layout.sync_folder(self._path)
        self._remove_old()
        return final

    def _sync_identity(self) -> None:
        """Syncs the identity file before the first checkpoint: it must survive a power failure."""
        if not self._has_identity:
            layout.sync_identity(self._path)
            self._has_identity = True

    def _remove_old(self) -> None:
        for old in layout.newest_first(self._path)[self._n_newest :]:
            layout.remove(old)

    # -- loading -----------------------------------------------------------------------------

    def load(self) -> dict[str, Any] | None:
        """The newest state that is undamaged, or None. Unpickles tensors and plain values only.

        Each state that is skipped is named on the standard error stream.
        """
        self.wait()
        # Folders of a framework are not for torch.load.
        return self._first(lambda p: None if layout.is_of_framework(p) else load_state(p))

    def newest(self) -> Path | None:
        """The newest undamaged checkpoint that is a folder of a framework, or None."""
        self.wait()

        def checked(path: Path) -> Path | None:
            if not layout.is_of_framework(path):
                return None
            folders.check(path)
            return path

        return self._first(checked)

    def load_into(self, state: dict[str, Any]) -> dict[str, Any] | None:
        """Fills a state from the newest undamaged sharded checkpoint; None if there is none.

        Raises:
            RuntimeError: If a key of it is not in the checkpoint.
            ValueError: If a tensor has another shape there.
        """
        from tuner.trials.sharded import check, load_into

        self.wait()

        def checked(path: Path) -> Path | None:
            if path.is_dir() and not layout.is_of_framework(path):
                check(path)
                return path
            return None

        path = self._first(checked)
        if path is None:
            return None
        load_into(path, state)
        return state

    def _first(self, load: Callable[[Path], _T | None]) -> _T | None:
        """The result of `load` for the newest undamaged checkpoint."""
        skipped: list[tuple[Path, str]] = []
        for path in layout.newest_first(self._path):
            try:
                loaded = load(path)
            except MemoryError:
                raise  # Of this process, and not of the file.
            except FileNotFoundError as error:
                if path.exists():
                    skipped.append((path, str(error)))
            except Exception as error:  # Whatever damage brings about.
                skipped.append((path, f"{type(error).__name__}: {error}"))
            else:
                if loaded is not None:
                    self._tell(skipped, path)
                    return loaded
        self._tell(skipped, None)
        return None

    def _tell(self, skipped: list[tuple[Path, str]], used: Path | None) -> None:
        if not skipped:
            return
        lines = [f"Checkpoint {path} is damaged and is not used: {why}" for path, why in skipped]
        follows = "There is no other one: training starts from the beginning."
        if used is not None:
            follows = f"The next older one is used: {used}"
        # The disk of the log may be full.
        with contextlib.suppress(OSError):
            print(*lines, follows, sep="\n", file=sys.stderr, flush=True)
        if self.on_damage is not None:
            self.on_damage(
                [path for path, _ in skipped],
                None if used is None else layout.step_of(used),
            )


def load_state(path: Path) -> dict[str, Any]:
    """One checkpoint, its tensors whole and on the CPU.

    Raises:
        OSError: If it cannot be read.
        RuntimeError: If it is damaged, or something else.
    """
    import torch

    if layout.is_of_framework(path):
        raise RuntimeError(f"{path} has the files of a framework. Load them with the framework.")
    if path.is_dir():
        from tuner.trials.sharded import load_whole

        return load_whole(path)
    if damage := layout.damage_of(path):
        raise RuntimeError(damage)
    return dict(torch.load(path, map_location="cpu", weights_only=True))


def _save(state: dict[str, Any], file: IO[bytes]) -> None:
    import torch

    try:
        with with_checksums():
            torch.save(state, file)
    except RuntimeError as error:
        # What torch says of a file that could not be written hides why: no room, most often.
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise
