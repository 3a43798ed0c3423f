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

    def save(self, state: Mapping[str, Any], step: int) -> Path:
        """Writes beside the final name, syncs, renames: a reader sees all of it or nothing."""
        import torch

        final = self.path / f"step-{step}.pt"
        partial = final.with_suffix(f".partial-{os.getpid()}")
        try:
            with partial.open("wb") as file:
                torch.save(dict(state), file)
                file.flush()
                os.fsync(file.fileno())
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
        files = [file for file in self._path.glob("step-*.pt") if _step(file) is not None]
        return sorted(files, key=lambda file: _step(file) or 0, reverse=True)


def _step(file: Path) -> int | None:
    digits = file.stem.removeprefix("step-")
    return int(digits) if digits.isdigit() else None
