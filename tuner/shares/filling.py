"""Assigns devices to tuners one unit at a time, without ever taking away an earlier unit.

Each device is one bit of an integer. If all devices that suit a tuner are assigned, tuners that
could use another device switch to it (an augmenting path, as in bipartite matching).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

_MANY = 1 << 30


def bits(mask: int) -> Iterator[int]:
    """The numbers of the devices in a mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Filling:
    """The owner of each device.

    Args:
        parts: The size of each device.
        suits: By tuner, the devices that it can use.
        held: By tuner, the devices that it has now, which it gets in preference to others.
    """

    def __init__(self, parts: Sequence[int], suits: Sequence[int], held: Sequence[int]) -> None:
        self.parts = parts
        self._suits = suits
        self._held = held
        self._unheld = ~_union(held)
        self._same_size = {size: _mask(parts, size) for size in set(parts)}
        self.free = (1 << len(parts)) - 1
        self.got = [0] * len(suits)
        self._owner = [-1] * len(parts)

    def give(self, tuner: int, mask: int) -> None:
        """Assigns free devices to a tuner."""
        for device in bits(mask):
            self._owner[device] = tuner
        self.got[tuner] |= mask
        self.free &= ~mask

    def grow(self, tuner: int, n_devices: int, room_parts: int) -> int:
        """Gives a tuner more devices.

        Args:
            tuner: Its number.
            n_devices: All of them, or none.
            room_parts: Maximum total size.

        Returns:
            Their total size; 0 if they are not available.
        """
        before = (self.free, self.got[:], self._owner[:]) if n_devices > 1 else None
        taken = 0
        for _ in range(n_devices):
            added = self.add(tuner, self._small_enough(room_parts - taken))
            if not added:
                if before is not None:
                    self.free, self.got, self._owner = before
                return 0
            taken += added
        return taken

    def add(self, tuner: int, allowed: int = -1) -> int:
        """Gives a tuner one more device; returns its size, 0 if none is available."""
        if not self.free:
            return 0
        free = self.free & allowed & self._suits[tuner]
        choice = free & self._held[tuner] or free & self._unheld or free
        if not choice:
            return self._add_by_moving(tuner, allowed)
        device = _lowest(choice)
        self.give(tuner, 1 << device)
        return self.parts[device]

    def add_cheaply(self, tuner: int, allowed: int = -1) -> int:
        """Like `add`, so that as many devices as possible stay with the tuner that holds them.

        A shortest augmenting path, as in the assignment problem: a device costs 1 for a tuner that
        does not hold it. What begins with as few changes as possible stays so (Ahuja, Magnanti and
        Orlin, Network Flows, section 9.7).
        """
        free = self.free & allowed & self._suits[tuner]
        own_elsewhere = self._held[tuner] & ~self.got[tuner] & ~self.free
        if free & self._held[tuner] or (free and not own_elsewhere):
            return self.add(tuner, allowed)
        paths = [
            path
            for of_size in self._same_size.values()
            if (path := self._cheapest_path(tuner, allowed & of_size, of_size))
        ]
        if not paths:
            return self.add(tuner, allowed)
        _, hops = min(paths, key=lambda path: (path[0], len(path[1])))
        for owner, device in reversed(hops):
            # From the free end on: each gets its device before the one before it takes its own.
            self._hand_over(owner, device)
        return self.parts[hops[0][1]]

    def _hand_over(self, tuner: int, device: int) -> None:
        if self._owner[device] >= 0:
            self.got[self._owner[device]] &= ~(1 << device)
        self.give(tuner, 1 << device)

    def _cheapest_path(
        self, tuner: int, allowed: int, of_size: int
    ) -> tuple[int, list[tuple[int, int]]] | None:
        """The cost of a path and its assignments of devices; None if there is none.

        Args:
            tuner: The tuner that gets a device more.
            allowed: The devices that it may get.
            of_size: Devices of one size: only these replace each other.
        """
        owners = [other for other, got in enumerate(self.got) if got & of_size and other != tuner]
        costs = {tuner: 0}
        before: dict[int, tuple[int, int]] = {}
        changed = [tuner]
        for _ in range(len(owners) + 1):
            following: list[int] = []
            for taker in changed:
                usable = self._suits[taker] & of_size & (allowed if taker == tuner else -1)
                for owner in owners:
                    if owner != taker and (choice := usable & self.got[owner]):
                        change, device = self._change(taker, owner, choice)
                        if costs[taker] + change < costs.get(owner, _MANY):
                            costs[owner] = costs[taker] + change
                            before[owner] = (taker, device)
                            following.append(owner)
            changed = list(dict.fromkeys(following))
            if not changed:
                break
        return self._best_end(tuner, costs, before, allowed, of_size)

    def _change(self, taker: int, owner: int, choice: int) -> tuple[int, int]:
        """Number of additional changes, and the device, if one tuner takes another's."""
        if own := choice & self._held[taker]:
            return -1, own
        if other := choice & ~self._held[owner]:
            return 0, other
        return 1, choice

    def _best_end(
        self,
        tuner: int,
        costs: dict[int, int],
        before: dict[int, tuple[int, int]],
        allowed: int,
        of_size: int,
    ) -> tuple[int, list[tuple[int, int]]] | None:
        best: tuple[tuple[int, bool], int, int] | None = None
        for end, cost in costs.items():
            free = self.free & self._suits[end] & of_size & (allowed if end == tuner else -1)
            choice = free & self._held[end] or free & self._unheld or free
            if choice:
                key = (cost + (not choice & self._held[end]), not choice & self._unheld)
                if best is None or key < best[0]:
                    best = key, end, choice
        if best is None:
            return None
        (cost, _), end, choice = best
        hops = [(end, _lowest(choice))]
        while end != tuner:
            if len(hops) > len(costs):
                return None  # A limit of a user was in the way before: some changes are too many.
            end, choice = before[end]
            hops.append((end, _lowest(choice)))
        hops.reverse()
        return cost, hops

    def _add_by_moving(self, tuner: int, allowed: int) -> int:
        seen = self._suits[tuner] & ~self.free & allowed & ((1 << len(self.parts)) - 1)
        before: dict[int, int] = dict.fromkeys(bits(seen), -1)
        queue = deque(before)
        while queue:
            device = queue.popleft()
            others = self._suits[self._owner[device]] & self._same_size[self.parts[device]]
            if found := others & self.free:
                self._move(tuner, device, _lowest(found), before)
                return self.parts[device]
            new = others & ~seen
            seen |= new
            for other in bits(new):
                before[other] = device
                queue.append(other)
        return 0

    def _move(self, tuner: int, device: int, free: int, before: dict[int, int]) -> None:
        """Along the path: each owner takes the device behind it, the last one the free device."""
        while device >= 0:
            owner = self._owner[device]
            self.got[owner] &= ~(1 << device)
            self.give(owner, 1 << free)
            self._owner[device] = -1
            self.free |= 1 << device
            device, free = before[device], device
        self.give(tuner, 1 << free)

    def _small_enough(self, room_parts: int) -> int:
        fits = (mask for size, mask in self._same_size.items() if size <= room_parts)
        return _union(fits)


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _union(masks: Sequence[int] | Iterator[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def _mask(parts: Sequence[int], size: int) -> int:
    return _union(1 << number for number, each in enumerate(parts) if each == size)
