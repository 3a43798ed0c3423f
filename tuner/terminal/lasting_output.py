"""Output that may go away while a study runs: a full disk, a closed pipe, a closed terminal."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

_log = logging.getLogger(__name__)


class LastingOutput:
    """A text stream that discards output once its file cannot be written.

    Args:
        stream: With a file descriptor; other attributes are delegated to it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _give_up(self, error: OSError) -> None:
        _log.warning("Output cannot be written any more (%s). The study continues.", error)
        # What waits in the stream's buffer goes there too, so that no later flush fails.
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
            self._stream.flush()


def _open_missing() -> None:
    """Opens the null device for streams that were closed before this program started (`>&-`).

    Otherwise the next opened file, such as the database, would get their number.
    """
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != fd:
                os.dup2(nowhere, fd)
                os.close(nowhere)
            os.set_inheritable(fd, True)
            setattr(sys, name, os.fdopen(fd, "r" if fd == 0 else "w", closefd=False))


@contextlib.contextmanager
def lasting_output() -> Iterator[None]:
    """Lets a study continue when its output is closed."""
    _open_missing()
    before = sys.stdout, sys.stderr
    lasting = [LastingOutput(stream) for stream in before]
    sys.stdout, sys.stderr = (cast(TextIO, stream) for stream in lasting)
    try:
        yield
    finally:
        for stream in lasting:
            stream.flush()
        sys.stdout, sys.stderr = before
