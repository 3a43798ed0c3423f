"""The time zone in which a figure shows instants."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """A fixed offset from UTC: an axis that skips an hour would misrepresent durations."""

    #: East of Greenwich is positive.
    offset_s: float = 0.0

    @property
    def name(self) -> str:
        """`UTC` or `UTC+02:00`"""
        if not self.offset_s:
            return "UTC"
        minutes = round(abs(self.offset_s) / 60)
        return f"UTC{'+' if self.offset_s > 0 else '-'}{minutes // 60:02}:{minutes % 60:02}"

    def instant(self, at_s: float) -> datetime:
        """Local time without a zone: a browser would shift one with a zone again.

        Args:
            at_s: Seconds since the epoch.
        """
        return datetime.fromtimestamp(at_s + self.offset_s, UTC).replace(tzinfo=None)


IN_UTC = Zone()
