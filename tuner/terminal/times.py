"""Times and durations as commands print them."""

from __future__ import annotations

from datetime import UTC, datetime

from tuner.terminal import wording


def instant(at: datetime) -> str:
    """`2026-03-01T12:00:00Z`, with microseconds if not 0."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def when(at: datetime | None) -> str:
    """To the minute, in this machine's time zone."""
    return f"{at.astimezone():%Y-%m-%d %H:%M}" if at else "-"


def zone() -> str:
    """The name of this machine's time zone, for a column's head: `CET`, `+0530`."""
    return datetime.now().astimezone().tzname() or "local time"


def ago(at: datetime | None, now: datetime) -> str:
    return f"{wording.duration(max(0.0, (now - at).total_seconds()))} ago" if at else "-"


def seconds(duration_s: float | None) -> str:
    """Short ones to a tenth: most trials of a quick study take less than a second."""
    if duration_s is None:
        return "-"
    return f"{duration_s:.1f} s" if duration_s < 10 else wording.duration(duration_s)
