"""Saves and finds the states of one trial: whole files only, the newest two kept."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: The newest one may be torn by a disk that filled up; the one before it is then still there.
N_KEPT = 2


class CheckpointFolder:
    """The checkpoints of one trial in one folder, as `step-<n>.pt`.

    Args:
        path: The folder; made when the first state is saved.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        self._path.mkdir(parents=True, exist_ok=True)
        return self._path

    def file_of(self, step: int) -> Path:
        """Where the state of a step is or would be; nothing is made."""
        return self._path / f"step-{step}.pt"

    def save(self, state: Mapping[str, Any], step: int) -> Path:
        """Writes beside the final name, syncs, renames: a reader sees all of it or nothing."""
        import torch

        self._path.mkdir(parents=True, exist_ok=True)
        final = self.file_of(step)
        partial = final.with_suffix(f".partial-{os.getpid()}")
        try:
            with partial.open("wb") as file:
                torch.save(dict(state), file)
                file.flush()
                os.fsync(file.fileno())
            _refuse_unloadable(partial)
            partial.replace(final)
        finally:
            partial.unlink(missing_ok=True)
        for old in self._newest_first()[N_KEPT:]:
            old.unlink(missing_ok=True)
        return final

    def load(self) -> dict[str, Any] | None:
        """The newest state that can be read, or None. Unpickles tensors and plain values only."""
        import torch

        for file in self._newest_first():
            try:
                state = torch.load(file, map_location="cpu", weights_only=True)
            except (OSError, RuntimeError, EOFError, pickle.UnpicklingError):
                continue
            return dict(state)
        return None

    def _newest_first(self) -> list[Path]:
        # By time and not by step: a trial that starts over saves smaller steps again.
        files = self._path.glob("step-*.pt")
        return sorted(files, key=lambda file: file.stat().st_mtime_ns, reverse=True)


def _refuse_unloadable(file: Path) -> None:
    """
    Raises:
        TypeError: If the file holds what `weights_only=True` does not load, a NumPy number say.
    """
    import torch

    try:
        # With mmap the tensors themselves are not read.
        torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise TypeError(
            "save_checkpoint: the state holds something that cannot be loaded again safely. Save "
            "state dicts, tensors, numbers, strings and containers of them (float(x) for NumPy's "
            f"numbers). torch says: {str(error).splitlines()[0]}"
        ) from error
