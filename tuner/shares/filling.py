"""Devices for tuners, one unit at a time, so that what was given stays possible.

Each device is one bit of a whole number. Where a tuner finds all that suits it taken, tuners that
could use another device move over (an augmenting path, as in bipartite matching).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence


def bits(mask: int) -> Iterator[int]:
    """The numbers of the devices in a mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Filling:
    """Which device is whose.

    Args:
        parts: The size of each device.
        suits: For each tuner, the devices that it can use.
        held: For each tuner, the devices that it has now. It gets these rather than others.
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
        """Gives a tuner devices that are free."""
        for device in bits(mask):
            self._owner[device] = tuner
        self.got[tuner] |= mask
        self.free &= ~mask

    def grow(self, tuner: int, n_devices: int, room_parts: int) -> int:
        """Gives a tuner so many devices more.

        Args:
            tuner: Its number.
            n_devices: All of them, or none.
            room_parts: Their size together at most.

        Returns:
            Their size; 0 where they cannot be had.
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
        """Gives a tuner one device more; its size, or 0 where none can be had."""
        if not self.free:
            return 0
        free = self.free & allowed & self._suits[tuner]
        choice = free & self._held[tuner] or free & self._unheld or free
        if not choice:
            return self._add_by_moving(tuner, allowed)
        device = (choice & -choice).bit_length() - 1
        self.give(tuner, 1 << device)
        return self.parts[device]

    def _add_by_moving(self, tuner: int, allowed: int) -> int:
        seen = self._suits[tuner] & ~self.free & allowed & ((1 << len(self.parts)) - 1)
        before: dict[int, int] = dict.fromkeys(bits(seen), -1)
        queue = deque(before)
        while queue:
            device = queue.popleft()
            others = self._suits[self._owner[device]] & self._same_size[self.parts[device]]
            if found := others & self.free:
                self._move(tuner, device, (found & -found).bit_length() - 1, before)
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


def _union(masks: Sequence[int] | Iterator[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def _mask(parts: Sequence[int], size: int) -> int:
    return _union(1 << number for number, each in enumerate(parts) if each == size)
