"""A new database for each test, from tables that are made once."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from tuner.store.database import open_database


def new_database(folder: Path) -> str:
    """URL of the folder's `study.db`, which is made if it is not there."""
    path = folder / "study.db"
    if not path.exists():
        path.write_bytes(_empty())
    return f"sqlite:///{path}"


@functools.cache
def _empty() -> bytes:
    # Optuna takes longer to make its tables than most tests last.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        open_database(f"sqlite:///{path}").close()
        return path.read_bytes()
