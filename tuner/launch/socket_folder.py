"""Folders whose path is short enough for a Unix socket in them."""

from __future__ import annotations

import tempfile
from pathlib import Path

#: A socket's path may have 107 characters (man 7 unix), and its own name needs some.
_MAX_CHARACTERS = 70


def private_folder() -> Path:
    """A new folder that only this user may enter, in TMPDIR unless that is too deep."""
    base = tempfile.gettempdir()
    if len(base) > _MAX_CHARACTERS:
        base = "/tmp"
    return Path(tempfile.mkdtemp(prefix="tuner-", dir=base))
