"""Splits a program's output into lines, in time that is linear in its length."""

from __future__ import annotations

from collections.abc import Iterator

#: Maximum bytes of a line that are parsed for metrics. The rest is in the log only.
MAX_LINE_BYTES = 1024 * 1024


class LineSplitter:
    """Splits output into complete lines, each at most `MAX_LINE_BYTES` long.

    A carriage return ends a line like a newline does: progress bars print nothing else for minutes.
    The beginning of a line that is too long is returned as soon as the limit is reached, so that a
    program that never ends its line is read, too.
    """

    def __init__(self) -> None:
        self._unfinished = bytearray()
        self._is_skipping = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Adds output; returns the lines that it completes."""
        first, *others = chunk.replace(b"\r", b"\n").split(b"\n")
        yield from self._extend(first)
        for part in others:
            yield from self.finish()
            yield from self._extend(part)

    def finish(self) -> Iterator[bytes]:
        """Ends an incomplete line; returns it unless it was returned already."""
        line, was_skipping = bytes(self._unfinished), self._is_skipping
        self._unfinished.clear()
        self._is_skipping = False
        if not was_skipping:
            yield line

    def _extend(self, part: bytes) -> Iterator[bytes]:
        if self._is_skipping:
            return
        self._unfinished += part[: MAX_LINE_BYTES - len(self._unfinished)]
        if len(self._unfinished) == MAX_LINE_BYTES:
            yield from self.finish()
            self._is_skipping = True
