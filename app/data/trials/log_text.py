"""The log of an attempt: its path, and its text as in a terminal."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.checkpoints.paths import FOLDER_NAME
from tuner.checkpoints.trial_folders import TrialKey, locate
from tuner.errors import StoreError
from tuner.queries.trials.attempts import StoredAttempt
from tuner.queries.uploads import fetch_log
from tuner.store.records.upload_rows import StoredUpload

#: Of a longer log, the end is shown and searched; the download is complete.
MAX_SHOWN_BYTES = 2**21
TAIL_LINES = 60
MAX_FOUND = 500
#: Colours, cursor moves and titles of windows (ECMA-48).
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A log that can be read here, or why it cannot."""

    path: Path | None
    problem: str = ""


def find_log(
    attempt: StoredAttempt, key: TrialKey | None = None, uploads: Sequence[StoredUpload] = ()
) -> Log:
    """Finds an attempt's log.

    Args:
        attempt: The attempt.
        key: Identifies its trial: another one may use its folder by now.
        uploads: Logs of the trial in an object store.
    """
    path = Path(attempt.log_path)
    uploaded = next((each for each in uploads if each.name == path.name), None)
    if attempt.host != socket.gethostname() and uploaded is not None:
        try:
            return Log(path=fetch_log(uploaded, os.environ))
        except StoreError as error:
            return Log(path=None, problem=str(error))
    if attempt.host != socket.gethostname():
        return Log(path=None, problem=f"The log is on {attempt.host}: {path}")
    if _is_ours(path) and key is not None:
        folder = locate(path.parent, key)
        if folder is None and path.parent.is_dir():
            gone = f"The log is gone: {path.parent} holds the files of another trial."
            return Log(path=None, problem=gone)
        path = (folder or path.parent) / path.name
    if not _is_ours(path):
        return Log(path=None, problem=f"{path} is not a log of the tuner.")
    return Log(path=path)


def _is_ours(path: Path) -> bool:
    """A foreign database could name any file of this machine."""
    return path.suffix == ".log" and FOLDER_NAME in path.resolve().parts


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """Lines of a log to show."""

    lines: tuple[str, ...]
    #: Number of lines read.
    n_read: int
    #: Whether the log has more before them.
    is_cut: bool

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def read_log(path: Path, *, search: str = "", n_last: int = TAIL_LINES) -> LogPart:
    """The last lines of a log, or the last ones that contain a text.

    Args:
        path: The log.
        search: Text of the lines, case-insensitive; empty for all.
        n_last: Maximum number of lines.

    Raises:
        OSError: If it cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - MAX_SHOWN_BYTES))
        text = file.read().decode(errors="replace")
    is_cut = size > MAX_SHOWN_BYTES
    lines = cleaned(text)[int(is_cut) :]
    wanted = search.casefold()
    found = [each for each in lines if wanted in each.casefold()] if wanted else lines
    return LogPart(lines=tuple(found[-n_last:]), n_read=len(lines), is_cut=is_cut)


def cleaned(text: str) -> list[str]:
    """Lines as in a terminal.

    Colours are removed, and of text overwritten after carriage returns, as by progress bars, only
    the last remains.
    """
    lines = _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [_last_written(each) for each in lines]


def _last_written(line: str) -> str:
    return next((each for each in reversed(line.split("\r")) if each.strip()), "")
