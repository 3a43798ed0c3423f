"""Dispatchers whose process cannot be checked from here: watched until they are known to be dead.

A dispatcher is dead if its record does not change during a minute of watching. Only the watcher's
monotonic clock counts; timestamps in records are compared for equality only. Time in which the
watcher itself could not read the records does not count: after an outage of the database, the
others may write later than the watcher reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tuner.host.process_identity import Life, ProcessIdentity, life_of
from tuner.store.records.dispatchers.starts import OpenDispatcher, Sign

#: Seconds of watching without a change after which an uncheckable dispatcher counts as dead.
STALE_AFTER_S = 60.0
#: Maximum seconds between two looks that count as watching. Longer intervals are outages that other
#: parts of the watcher have noticed; a live dispatcher has most of the minute left to write.
_COUNTED_S = 15.0
_LOOK_EVERY_S = 1.0


@dataclass(slots=True, kw_only=True)
class _Sight:
    """A dispatcher as it was seen last."""

    beat_at: datetime
    #: None after a failed look.
    seen_at_s: float | None
    #: Seconds of watching without a change.
    watched_s: float = 0.0


@dataclass(slots=True)
class Sights:
    """When the records of dispatchers were seen to change."""

    _sights: dict[int, _Sight] = field(default_factory=dict)

    def is_silent(self, sign: Sign, now_s: float) -> bool:
        """Records an observation of a dispatcher; whether it has been silent for a minute."""
        sight = self._sights.get(sign.dispatcher_id)
        if sight is None or sight.beat_at != sign.beat_at:
            self._sights[sign.dispatcher_id] = _Sight(beat_at=sign.beat_at, seen_at_s=now_s)
            return False
        if sight.seen_at_s is not None:
            sight.watched_s += min(now_s - sight.seen_at_s, _COUNTED_S)
        sight.seen_at_s = now_s
        return sight.watched_s >= STALE_AFTER_S

    def interrupt(self) -> None:
        """After a failed look: the time from the previous look to the next one does not count."""
        for sight in self._sights.values():
            sight.seen_at_s = None


def watch_silent(
    look: Callable[[], Sequence[OpenDispatcher]],
    here: ProcessIdentity,
    say: Callable[[str], None],
    *,
    monotonic_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> frozenset[Sign]:
    """Watches the dispatchers that cannot be checked from here, for a minute at most.

    Args:
        look: Reads the dispatchers whose records have not ended.
        here: This process.
        say: Shows that this takes a while.
        monotonic_s: The monotonic time in seconds.
        sleep: Waits for a number of seconds.

    Returns:
        The last heartbeats of dead dispatchers. Empty if there are none, or as soon as one
        dispatcher turns out to be alive: the caller's request is then refused.
    """
    sights = Sights()
    first: dict[int, Sign] = {}
    while True:
        found = look()
        lives = [life_of(one.process, here=here) for one in found]
        unknown = [one for one, life in zip(found, lives, strict=True) if life is Life.UNKNOWN]
        if Life.ALIVE in lives or any(first.get(one.id, one.sign) != one.sign for one in unknown):
            return frozenset()
        if unknown and not first:
            say(_told(unknown[0]))
        first |= {one.id: one.sign for one in unknown}
        now_s = monotonic_s()
        # Not a generator: each of them is looked at.
        if all([sights.is_silent(one.sign, now_s) for one in unknown]):
            return frozenset(one.sign for one in unknown)
        sleep(_LOOK_EVERY_S)


def _told(one: OpenDispatcher) -> str:
    return (
        f"The study's last dispatcher, on {one.place}, did not record its end, and its process "
        "cannot be checked from here (another machine, PID namespace or boot). Waiting up to "
        f"{STALE_AFTER_S:.0f} s for a sign of life."
    )
