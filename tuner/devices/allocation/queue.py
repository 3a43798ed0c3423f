"""Who starts next, where trials of all widths wait: narrow ones fill gaps, wide ones never starve.

First come, first served, but while the oldest waits for devices that others still use, younger
ones that fit may pass it (backfill, as in batch schedulers; how long a trial lasts is not known
here, so the oldest cannot be promised a time, as in EASY (Lifka 1995)). They pass until its
patience ends: until as much as the whole pool has passed it, or until all have ended that ran
when its turn came. From then on as many devices as it needs are reserved, on which nothing else
starts: all that are free, and for the rest those that it waits for. One that becomes free
elsewhere takes the place of one that is waited for.

Patience pays because wide trials gather meanwhile, and follow each other on devices that were
emptied once: on 8 devices, trials of 1, 2, 4 and 8 use 89 % of the time instead of 82 %, on 64
devices 99.7 % instead of 98.0 %. More patience adds at most one percent there, but the oldest
waits longer; if it never ended, for 8 to 40 times the longest trial (`benchmarks/placement.py`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Generic, TypeVar

from tuner.devices.allocation.pool import DevicePool, Lease
from tuner.devices.allocation.width import WHOLE, Width, n_devices_of, parts_on
from tuner.devices.device import Device, DeviceId

T = TypeVar("T")

#: So many times the pool's own size may pass the oldest before devices are kept for it.
PATIENCE = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """The oldest item was found not to fit. It stays the one to be served until it has started."""

    #: The turn is that of the oldest item of this width.
    width: Width
    #: The newest lease when the turn came.
    newest_lease: int
    parts_passed: int = 0
    reserved: tuple[Device, ...] = ()

    @property
    def reserved_ids(self) -> AbstractSet[DeviceId]:
        return frozenset(device.id for device in self.reserved)


class WaitingLine(Generic[T]):
    """Items that wait for devices, and the choice of the next one to start.

    The bound: let L be the longest time from an attempt's lease to its release. Where
    `start_next` is called until it gives None whenever something was released or put, an item
    starts at the latest 2 L after it became the oldest (L without patience). Its patience ends
    after at most L, as all attempts are over that ran when it became the oldest; those on the
    devices that are reserved then are over after L more. The bound needs enough devices that are
    not set aside and that `may_use` allows; where a reserved one leaves, it counts anew. An item
    put first does not take the turn from an item of another width that was found not to fit.

    The cost of a decision grows with the number of different widths, and of devices that are
    free or shared, not with the number of items. Items of one width start in their order, so
    `may_use` is asked for the oldest of each width alone.

    Args:
        patience: How often the pool's own size may pass the oldest; 0 reserves at once.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        #: Heaps of (was not put first, arrival, item).
        self._queues: dict[Width, list[tuple[bool, int, T]]] = {}
        self._arrivals = count()
        self._turn: _Turn | None = None

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __iter__(self) -> Iterator[T]:
        """All that wait, the oldest first."""
        return (item for _, _, item in sorted(chain(*self._queues.values())))

    def put(self, item: T, width: Width, *, is_first: bool = False) -> None:
        """Lets an item wait.

        Args:
            item: What waits.
            width: What it needs.
            is_first: Puts it before all that were not put first.
        """
        queue = self._queues.setdefault(width, [])
        heapq.heappush(queue, (not is_first, next(self._arrivals), item))

    def take_all(self) -> list[T]:
        """Empties the line: nothing more is to start."""
        items = list(self)
        self._queues.clear()
        self._turn = None
        return items

    def unplaceable(self, pool: DevicePool) -> list[T]:
        """Takes out and gives the items that could not start were the whole pool free."""
        if not self._queues:
            return []
        widths = [width for width in self._queues if not pool.can_ever_fit(width)]
        if self._turn is not None and self._turn.width in widths:
            self._turn = None
        return [item for _, _, item in sorted(chain(*map(self._queues.pop, widths)))]

    def has_room_for(self, pool: DevicePool, widths: Iterable[Width]) -> bool:
        """Whether one more item could start now if it had one of these widths."""
        reserved = self._turn.reserved_ids if self._turn else frozenset()
        return any(pool.fits(width, avoid=reserved) for width in widths)

    def start_next(
        self,
        pool: DevicePool,
        *,
        name: Callable[[T], str],
        may_use: Callable[[T, Device], bool],
    ) -> tuple[T, Lease] | None:
        """Takes out the next item that may start, with its lease; None where none fits now.

        Args:
            pool: Where the lease is taken.
            name: The attempt that will hold an item's lease.
            may_use: Whether a device would do for an item; asked last, as it may read hardware.
        """
        if not self._queues:
            return None
        width = self._turn.width if self._turn else self._widths_by_age()[0]
        refused: set[DeviceId] = set()

        def may_use_noted(item: T, device: Device) -> bool:
            allowed = may_use(item, device)
            if not allowed:
                refused.add(device.id)
            return allowed

        lease = self._lease(width, pool, name, may_use_noted, avoid=frozenset())
        if lease is not None:
            self._turn = None
            return self._pop(width), lease
        self._turn = _wait(self._turn or _begin(width, pool), pool, refused, self._patience)
        return self._pass(self._turn, pool, name, may_use)

    def _pass(
        self,
        turn: _Turn,
        pool: DevicePool,
        name: Callable[[T], str],
        may_use: Callable[[T, Device], bool],
    ) -> tuple[T, Lease] | None:
        for width in self._widths_by_age():
            if width == turn.width:
                continue
            lease = self._lease(width, pool, name, may_use, avoid=turn.reserved_ids)
            if lease is not None:
                parts = lease.parts * len(lease.devices)
                self._turn = replace(turn, parts_passed=turn.parts_passed + parts)
                return self._pop(width), lease
        return None

    def _widths_by_age(self) -> list[Width]:
        """The width whose oldest item is the oldest of all comes first."""
        return sorted(self._queues, key=lambda width: self._queues[width][0][:2])

    def _lease(
        self,
        width: Width,
        pool: DevicePool,
        name: Callable[[T], str],
        may_use: Callable[[T, Device], bool],
        *,
        avoid: AbstractSet[DeviceId],
    ) -> Lease | None:
        """For the oldest item of a width."""
        _, _, item = self._queues[width][0]
        return pool.lease(
            width, name(item), may_use=lambda device: may_use(item, device), avoid=avoid
        )

    def _pop(self, width: Width) -> T:
        queue = self._queues[width]
        _, _, item = heapq.heappop(queue)
        if not queue:
            del self._queues[width]
        return item


def _begin(width: Width, pool: DevicePool) -> _Turn:
    newest = max((lease.number for lease in pool.leases[-1:]), default=0)
    return _Turn(width=width, newest_lease=newest)


def _wait(turn: _Turn, pool: DevicePool, refused: AbstractSet[DeviceId], patience: float) -> _Turn:
    """The turn after it was found once more that its item does not fit."""
    if not turn.reserved and not _is_patience_over(turn, pool, patience):
        return turn
    return replace(turn, reserved=_reserve(turn, pool, refused))


def _is_patience_over(turn: _Turn, pool: DevicePool, patience: float) -> bool:
    oldest = pool.leases[:1]
    have_all_ended = not oldest or oldest[0].number > turn.newest_lease
    return have_all_ended or turn.parts_passed >= patience * WHOLE * len(pool.devices)


def _reserve(turn: _Turn, pool: DevicePool, refused: AbstractSet[DeviceId]) -> tuple[Device, ...]:
    """As many devices as needed; none where there are not so many that will do.

    Free ones take the place of those that are waited for. Those that are waited for otherwise
    stay, else the wait would begin anew.
    """
    reserved: dict[DeviceId, Device] = {}
    for device in chain(pool.free, turn.reserved, _longest_leased(pool)):
        is_suited = parts_on(turn.width, device) is not None and device.id not in refused
        if is_suited and pool.hands_out(device):
            reserved[device.id] = device
        if len(reserved) == n_devices_of(turn.width):
            return tuple(reserved.values())
    return ()


def _longest_leased(pool: DevicePool) -> Iterator[Device]:
    # On a device that is leased whole, nothing is lost by starting nothing else.
    for is_whole in (True, False):
        for lease in pool.leases:
            if lease.is_whole == is_whole:
                yield from lease.devices
