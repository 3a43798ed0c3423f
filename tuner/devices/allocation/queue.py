"""Queue for trials of all widths: narrow trials fill gaps, wide trials never starve.

First come, first served; but while the oldest trial waits for busy devices, younger ones that fit
may pass it (backfill, as in batch schedulers). The duration of a trial is unknown when it starts,
so that the oldest cannot get a reservation in time, as in EASY (Lifka 1995); known are the
durations of ended attempts (`durations`).

With known durations, any trial may start until the oldest has waited for as long as the longest
attempt so far, or until all attempts have ended that ran when its turn came. In that time:

- Wider trials that fit start before the oldest, the widest first, so that wide trials follow each
  other on devices that were emptied once.
- A narrower one may take a device that the oldest needs if it is likely to end before the oldest
  could start anyway (`remaining.may_pass`). If not, devices are kept free for the oldest.

Without known durations (too few attempts have ended, or the pool has one device), younger ones pass
until the oldest's patience ends: until passing trials have used as many devices as the whole pool
has, or until all attempts have ended that ran when its turn came.

From then on as many devices as the oldest needs are reserved, and nothing else starts there: all
free ones, and for the rest those that it waits for. If another device becomes free first, it
replaces a reserved one that is still busy.

`benchmarks/placement.py` compares this with first come, first served, greedy backfill, and EASY
with perfect knowledge of durations; docs/benchmarks.md has the figures.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, count
from typing import Generic, TypeVar

from tuner.devices.allocation.durations import Durations
from tuner.devices.allocation.gathering import Gathering, gather
from tuner.devices.allocation.pool import DevicePool, Lease
from tuner.devices.allocation.remaining import LEAST_CHANCE, may_pass
from tuner.devices.allocation.width import WHOLE, Devices, Share, Width, n_devices_of, parts_on
from tuner.devices.device import Device, DeviceId

T = TypeVar("T")

#: Devices that may pass the oldest, as a multiple of the pool's size, before devices are reserved.
PATIENCE = 1.0
#: Number of oldest and of youngest leases that are considered to end soonest.
_N_SOONEST = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """The turn of the oldest item, which did not fit. It lasts until the item has started."""

    #: Width of the oldest item, whose turn it is.
    width: Width
    #: The newest lease when the turn started.
    newest_lease: int
    #: When the turn started (monotonic seconds); 0 if durations are not measured.
    since_s: float = 0.0
    parts_passed: int = 0
    reserved: tuple[Device, ...] = ()

    @property
    def reserved_ids(self) -> AbstractSet[DeviceId]:
        return frozenset(device.id for device in self.reserved)


class WaitingLine(Generic[T]):
    """Queue of items that wait for devices, and the choice of the next one to start.

    The bound: let L be the longest time from an attempt's lease to its release. If `start_next` is
    called until it returns None whenever something was released or put, an item starts at the
    latest 2 L after it became the oldest (L without patience). Others start before it for at most
    L: by then all attempts have ended that ran when it became the oldest, and no attempt so far was
    longer than L. Those on the devices that are then reserved end after L more. The bound requires
    enough devices that are not set aside and that `may_use` allows; if a reserved one leaves, it
    starts again. An item put first does not take the turn from an item of another width that was
    found not to fit.

    The cost of a decision grows with the number of different widths, and of devices that are free
    or shared, not with the number of items. Items of one width start in their order, so `may_use`
    is called only for the oldest of each width.

    Args:
        patience: Devices that may pass the oldest, as a multiple of the pool's size, while
            durations are not known; 0 reserves at once.
        durations: The durations of attempts; None if they are not measured and thus never known.
        least_chance: Minimum probability that a passing narrower trial ends before the oldest could
            start.
    """

    def __init__(
        self,
        patience: float = PATIENCE,
        durations: Durations | None = None,
        least_chance: float = LEAST_CHANCE,
    ) -> None:
        self._patience = patience
        self._durations = durations
        self._least_chance = least_chance
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
        """Empties the queue; returns its items."""
        items = list(self)
        self._queues.clear()
        self._turn = None
        return items

    def unplaceable(self, pool: DevicePool) -> list[T]:
        """Removes and returns the items that would not fit if the whole pool were free."""
        if not self._queues:
            return []
        widths = [width for width in self._queues if not pool.can_ever_fit(width)]
        if self._turn is not None and self._turn.width in widths:
            self._turn = None
        return [item for _, _, item in sorted(chain(*map(self._queues.pop, widths)))]

    def has_room_for(self, pool: DevicePool, widths: Iterable[Width]) -> bool:
        """Whether one more item could start now if it had one of these widths."""
        if self._turn is None:
            return any(map(pool.fits, widths))
        avoided = self._avoided(self._turn, pool)
        return any(pool.fits(width) and pool.fits(width, avoid=avoided(width)) for width in widths)

    def start_next(
        self,
        pool: DevicePool,
        *,
        name: Callable[[T], str],
        may_use: Callable[[T, Device], bool],
    ) -> tuple[T, Lease] | None:
        """Removes the next item that may start and leases its devices; None if none fits now.

        Args:
            pool: Leases the devices.
            name: The attempt that will hold an item's lease.
            may_use: Whether an item may use a device; called last, as it may read hardware.
        """
        if not self._queues:
            return None
        self._turn = self._turn or _begin(self._widths_by_age()[0], pool, self._durations)
        started = self._choose(self._turn, pool, name, may_use)
        if started is not None and self._durations is not None:
            self._durations.started(started[1])
        return started

    def ended(self, lease: Lease) -> None:
        """Records that a lease of `start_next` was released."""
        if self._durations is not None:
            self._durations.ended(lease)

    def gathering(self, pool: DevicePool) -> tuple[T, Gathering] | None:
        """The item for which devices are kept free, and these devices; None if there is none."""
        turn = self._turn
        if turn is None or not turn.reserved or self._durations is None:
            return None
        _, _, item = self._queues[turn.width][0]
        return item, gather(turn.reserved, pool, self._durations)

    def _choose(
        self,
        turn: _Turn,
        pool: DevicePool,
        name: Callable[[T], str],
        may_use: Callable[[T, Device], bool],
    ) -> tuple[T, Lease] | None:
        width = turn.width
        durations = self._open_window(turn, pool)
        if durations is not None and (wider := self._start_wider(width, pool, name, may_use)):
            return wider
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
        if durations is not None:
            self._turn = replace(turn, reserved=_reserve_soonest(turn, pool, refused, durations))
            return self._pass_in_window(self._turn, pool, name, may_use)
        self._turn = _wait(turn, pool, refused, self._patience)
        others = (each for each in self._widths_by_age() if each != width)
        return self._pass(self._turn, others, pool, name, may_use, avoid=self._turn.reserved_ids)

    def _open_window(self, turn: _Turn, pool: DevicePool) -> Durations | None:
        """The durations, if known and if any item may start without breaking the bound."""
        durations = self._durations
        if durations is None or not durations.are_known or len(pool.devices) == 1:
            return None
        waited_s = durations.now_s - turn.since_s
        is_open = waited_s <= durations.longest_s or not _have_all_ended(turn, pool)
        return durations if is_open and self._patience else None

    def _start_wider(
        self,
        width: Width,
        pool: DevicePool,
        name: Callable[[T], str],
        may_use: Callable[[T, Device], bool],
    ) -> tuple[T, Lease] | None:
        """Starts the widest that fits and is wider than the oldest, which was not put first."""
        if not self._is_any_put_first(width):
            for other in self._widths_by_size():
                if _size(other) <= _size(width):
                    break
                if lease := self._lease(other, pool, name, may_use, avoid=frozenset()):
                    return self._pop(other), lease
        return None

    def _pass_in_window(
        self,
        turn: _Turn,
        pool: DevicePool,
        name: Callable[[T], str],
        may_use: Callable[[T, Device], bool],
    ) -> tuple[T, Lease] | None:
        """Starts an item narrower than the oldest, which does not fit."""
        avoided = self._avoided(turn, pool)
        for width in self._widths_by_size():
            if width == turn.width or not pool.fits(width):
                continue
            if started := self._pass(turn, (width,), pool, name, may_use, avoid=avoided(width)):
                return started
        return None

    def _avoided(self, turn: _Turn, pool: DevicePool) -> Callable[[Width], AbstractSet[DeviceId]]:
        """The devices that a younger item of a width must not take."""
        reserved_ids = turn.reserved_ids
        durations = self._open_window(turn, pool)
        if durations is None or not reserved_ids:
            return lambda width: reserved_ids
        running = durations.running_on(turn.reserved, pool)

        @cache
        def may_take(n_devices: int) -> bool:
            return may_pass(durations.lengths_s(n_devices), running, self._least_chance)

        def avoided(width: Width) -> AbstractSet[DeviceId]:
            if pool.fits(width, avoid=reserved_ids) or not may_take(n_devices_of(width)):
                return reserved_ids
            return frozenset()

        return avoided

    def _pass(
        self,
        turn: _Turn,
        widths: Iterable[Width],
        pool: DevicePool,
        name: Callable[[T], str],
        may_use: Callable[[T, Device], bool],
        *,
        avoid: AbstractSet[DeviceId],
    ) -> tuple[T, Lease] | None:
        for width in widths:
            lease = self._lease(width, pool, name, may_use, avoid=avoid)
            if lease is not None:
                parts = lease.parts * len(lease.devices)
                self._turn = replace(turn, parts_passed=turn.parts_passed + parts)
                return self._pop(width), lease
        return None

    def _is_any_put_first(self, width: Width) -> bool:
        """Whether the oldest item of a width was put first."""
        return not self._queues[width][0][0]

    def _widths_by_size(self) -> list[Width]:
        """Widths, those with an item put first at the beginning, then from wide to narrow."""
        return sorted(
            self._queues,
            key=lambda width: (self._is_any_put_first(width), _size(width)),
            reverse=True,
        )

    def _widths_by_age(self) -> list[Width]:
        """Widths in the order of their oldest items."""
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


def _begin(width: Width, pool: DevicePool, durations: Durations | None) -> _Turn:
    newest = max((lease.number for lease in pool.leases[-1:]), default=0)
    since_s = durations.now_s if durations is not None else 0.0
    return _Turn(width=width, newest_lease=newest, since_s=since_s)


def _size(width: Width) -> tuple[int, int]:
    """Orders widths: by devices, then by parts of one."""
    if isinstance(width, Devices):
        return width.n_devices, WHOLE
    return 1, width.parts if isinstance(width, Share) else 0


def _wait(turn: _Turn, pool: DevicePool, refused: AbstractSet[DeviceId], patience: float) -> _Turn:
    """The turn after it was found once more that its item does not fit."""
    if not turn.reserved and not _is_patience_over(turn, pool, patience):
        return turn
    return replace(turn, reserved=_reserve(turn, pool, refused))


def _is_patience_over(turn: _Turn, pool: DevicePool, patience: float) -> bool:
    is_passed = turn.parts_passed >= patience * WHOLE * len(pool.devices)
    return is_passed or _have_all_ended(turn, pool)


def _have_all_ended(turn: _Turn, pool: DevicePool) -> bool:
    """Whether all attempts have ended that ran when the turn started."""
    oldest = pool.leases[:1]
    return not oldest or oldest[0].number > turn.newest_lease


def _reserve(turn: _Turn, pool: DevicePool, refused: AbstractSet[DeviceId]) -> tuple[Device, ...]:
    """Reserves as many devices as needed; returns none if too few are suitable.

    Free devices replace busy reserved ones. Other busy reserved devices stay, or the wait would
    start again.
    """
    devices = chain(pool.free, turn.reserved, _longest_leased(pool))
    return _take_suited(devices, turn, pool, refused)


def _reserve_soonest(
    turn: _Turn, pool: DevicePool, refused: AbstractSet[DeviceId], durations: Durations
) -> tuple[Device, ...]:
    """Like `_reserve`, while the bound is not at risk: those that are likely to be free soonest."""
    # The remaining time grows or falls with the age, so the soonest is among the extremes.
    n_asked = max(_N_SOONEST, n_devices_of(turn.width))
    leases = pool.leases
    if len(leases) > 2 * n_asked:
        leases = (*leases[:n_asked], *leases[-n_asked:])
    soonest = sorted(leases, key=lambda lease: durations.running(lease).median_left_s)
    leased = (device for lease in soonest for device in lease.devices)
    return _take_suited(chain(pool.free, leased), turn, pool, refused)


def _take_suited(
    devices: Iterable[Device], turn: _Turn, pool: DevicePool, refused: AbstractSet[DeviceId]
) -> tuple[Device, ...]:
    reserved: dict[DeviceId, Device] = {}
    for device in devices:
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
