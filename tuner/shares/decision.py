"""Assigns devices to tuners: a pure function that all tuners of a machine compute identically.

Guarantees come first; the rest goes to users one device at a time, always to the one with the
smallest amount relative to its weight (weighted max-min fairness by progressive filling, Bertsekas
and Gallager, Data Networks, section 6.5.2). Devices that cannot be divided evenly rotate, one turn
per `hold`, so that equal users get equal time. A user's own studies divide that user's part by
priority, equal ones evenly.

While requests do not change, moves end within one turn. The number of devices that each tuner may
have does not depend on the current holders (feasible sets are the independent sets of a matroid),
and among all assignments of these numbers one with the fewest changes is chosen. A returned device
is not one that its giver keeps, so no such step increases the minimum number of changes; a taken
device is one of them, so each reduces it by one, in any order of the tuners' actions. (If devices
differ in size, the numbers depend on what is held; the tests cover this.)
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence

from tuner.devices.device import DeviceId
from tuner.shares.filling import Filling, bits
from tuner.shares.people import Census
from tuner.shares.terms import Ask, Decision, Move, Standing

_NO_LIMIT = 1 << 60


def decide(
    asks: Sequence[Ask], devices: Mapping[DeviceId, int], census: Census, now_s: float
) -> Decision:
    """Assigns the devices of a machine.

    Args:
        asks: Requests of all tuners of the machine.
        devices: Devices without foreign processes, with their sizes in parts.
        census: The current rules for the users of `asks`.
        now_s: Seconds UTC.
    """
    return _Division(asks, devices, census, now_s).decide()


class _Division:
    def __init__(
        self,
        asks: Sequence[Ask],
        devices: Mapping[DeviceId, int],
        census: Census,
        now_s: float,
    ) -> None:
        self._asks = sorted(asks, key=lambda ask: (ask.since_s, ask.name))
        # Small ones first: what fits into a share of a GPU leaves whole ones to others.
        self._ids = sorted(devices, key=lambda device_id: (devices[device_id], device_id))
        self._number = {device_id: number for number, device_id in enumerate(self._ids)}
        self._parts = [devices[device_id] for device_id in self._ids]
        self._census = census
        self._now_s = now_s
        self._turn = int(now_s // census.hold_s)
        self._held = self._held_masks()
        masks: dict[frozenset[DeviceId], int] = {}
        for ask in self._asks:
            if ask.suits not in masks:
                masks[ask.suits] = self._mask(ask.suits)
        pairs = zip(self._asks, self._held, strict=True)
        self._suits = [masks[ask.suits] | held for ask, held in pairs]
        self._filling = Filling(self._parts, self._suits, self._held)
        self._asks_of = self._by_user()
        self._rank = _ranks(list(self._asks_of), self._turn)
        self._right = dict.fromkeys(self._asks_of, 0)
        self._part = dict.fromkeys(self._asks_of, 0)

    def decide(self) -> Decision:
        self._fill_guarantees()
        self._fill_rest()
        final, order = self._assign(self._filling.got)
        moves = (*self._moves(final, order), *self._over_the_limit(final))
        return Decision(
            allotted={
                ask.name: frozenset(self._ids[number] for number in bits(mask))
                for ask, mask in zip(self._asks, final, strict=True)
            },
            moves=moves,
            standings={uid: self._standing(uid) for uid in self._asks_of},
        )

    # -- how much ----------------------------------------------------------------------------

    def _fill_guarantees(self) -> None:
        left = dict(self._census.guarantees)

        def room(uid: int) -> int:
            return min(left.get(self._account(uid), 0), self._room(uid))

        def take(uid: int, parts: int) -> float:
            left[self._account(uid)] -= parts
            self._right[uid] += parts
            return self._right[uid]

        self._fill(room, take, self._rank)

    def _fill_rest(self) -> None:
        def take(uid: int, _parts: int) -> float:
            return (self._part[uid] - self._right[uid]) / self._census.people[uid].weight

        self._fill(self._room, take, self._rank_for_rest())

    def _rank_for_rest(self) -> dict[int, int]:
        """Among users who share a guarantee, the one who got less of it comes first.

        Otherwise the odd devices of guarantee and rest would go to the same user, and two devices
        would move each turn without need.
        """
        ranks: dict[int, int] = {}
        for account in set(map(self._account, self._asks_of)):
            users = [uid for uid in self._asks_of if self._account(uid) == account]
            places = sorted(self._rank[uid] for uid in users)
            users.sort(key=lambda uid: (self._right[uid], self._rank[uid]))
            ranks |= zip(users, places, strict=True)
        return ranks

    def _fill(
        self,
        room: Callable[[int], int],
        take: Callable[[int, int], float],
        ranks: Mapping[int, int],
    ) -> None:
        """Repeatedly gives a unit to the user with the lowest level.

        Args:
            room: Maximum that a user may get, in parts.
            take: Records what a user got; returns the user's new level.
            ranks: The order of users with equal levels.
        """
        heap = [(0.0, ranks[uid], uid) for uid in self._asks_of]
        heapq.heapify(heap)
        open_asks = {uid: list(asks) for uid, asks in self._asks_of.items()}
        while heap and self._filling.free:
            _, rank, uid = heapq.heappop(heap)
            parts = self._grow(open_asks[uid], room(uid))
            if parts:
                self._part[uid] += parts
                heapq.heappush(heap, (take(uid, parts), rank, uid))

    def _grow(self, asks: list[int], room_parts: int) -> int:
        """Gives the user's next study a unit; drops studies that can get none."""
        while asks and room_parts > 0:
            number = min(asks, key=self._precedence)
            ask, n_got = self._asks[number], self._filling.got[number].bit_count()
            if n_got + ask.unit <= ask.wants:
                parts = self._filling.grow(number, ask.unit, room_parts)
                if parts:
                    return parts
            asks.remove(number)
        return 0

    def _precedence(self, number: int) -> tuple[int, int, int]:
        ask = self._asks[number]
        own = self._asks_of[ask.uid]
        # A user's studies change places once all users have: else two of two would never meet.
        turn = (own.index(number) - self._turn // len(self._asks_of)) % len(own)
        return -ask.priority, self._filling.got[number].bit_count(), turn

    def _room(self, uid: int) -> int:
        most = self._census.people[uid].most_parts
        return _NO_LIMIT if most is None else most - self._part[uid]

    # -- which -------------------------------------------------------------------------------

    def _assign(self, amounts: Sequence[int]) -> tuple[list[int], list[tuple[int, int]]]:
        """Gives each tuner its number of devices, its current ones first.

        Args:
            amounts: By tuner, devices of the number and sizes that it may have.

        Returns:
            The devices of each tuner, and (tuner, device) for those that it does not have yet.
        """
        sizes = [self._mask_of_size(size) for size in sorted(set(self._parts))]
        short = [
            [(mask & size).bit_count() - (held & size).bit_count() for size in sizes]
            for mask, held in zip(amounts, self._held, strict=True)
        ]
        needed = 0
        for number, of_sizes in enumerate(short):
            for size, n_short in zip(sizes, of_sizes, strict=True):
                needed |= self._suits[number] & size if n_short > 0 else 0
        filling = Filling(self._parts, self._suits, self._held)
        for number, mask in enumerate(amounts):
            for size in sizes:
                filling.give(number, self._kept(number, size, (mask & size).bit_count(), needed))
        needy = self._by_need([max(of_sizes, default=0) > 0 for of_sizes in short])
        self._add_missing(filling, sizes, short, needy)
        order = [
            (number, device)
            for number in self._by_need([True] * len(self._asks))
            for device in bits(filling.got[number] & ~self._held[number])
        ]
        return filling.got, order

    def _add_missing(
        self, filling: Filling, sizes: Sequence[int], short: list[list[int]], needy: Sequence[int]
    ) -> None:
        """Adds devices to tuners that have fewer than they may: guaranteed ones first.

        Devices become free one by one. None may go to a user's fair part while it could meet
        another user's guarantee.
        """
        right = self._by_account(self._right)
        secured = self._by_account(
            {uid: self._amount(asks, filling.got) for uid, asks in self._asks_of.items()}
        )
        for is_by_right in (True, False):
            for number in needy:
                account = self._account(self._asks[number].uid)
                for place, size in enumerate(sizes):
                    while short[number][place] > 0 and (
                        not is_by_right or secured[account] < right[account]
                    ):
                        allowed = size & self._within_limit(number, filling.got)
                        parts = filling.add_cheaply(number, allowed)
                        if not parts:
                            break
                        short[number][place] -= 1
                        secured[account] += parts

    def _within_limit(self, number: int, got: Sequence[int]) -> int:
        """For a user at the rules' maximum: only devices of the user's other studies."""
        uid = self._asks[number].uid
        most = self._census.people[uid].most_parts
        if most is None:
            return -1
        own = together = 0
        for each in self._asks_of[uid]:
            own |= self._held[each]
            together |= self._held[each] | got[each]
        return own if self._size(together) >= most else -1

    def _size(self, mask: int) -> int:
        return sum(self._parts[device] for device in bits(mask))

    def _kept(self, number: int, of_size: int, n_devices: int, needed: int) -> int:
        """The devices that a tuner keeps: if possible none that others need."""

        def preference(device: int) -> tuple[bool, bool, int]:
            return bool(needed >> device & 1), not self._is_fresh(number, device), device

        mask = 0
        for device in sorted(bits(self._held[number] & of_size), key=preference)[:n_devices]:
            mask |= 1 << device
        return mask

    def _by_need(self, is_needy: Sequence[bool]) -> list[int]:
        """Tuners with fewer devices than they may have; first those of users below a guarantee."""
        needy = [number for number, is_one in enumerate(is_needy) if is_one]
        held = self._held_by_account()
        right = self._by_account(self._right)

        def key(number: int) -> tuple[bool, float, int, int, int]:
            uid, since_s = self._asks[number].uid, self._asks[number].waits_since_s
            is_owed = held[self._account(uid)] < right[self._account(uid)]
            return not is_owed, since_s, self._rank[uid], -self._asks[number].priority, number

        return sorted(needy, key=key)

    # -- what has to move --------------------------------------------------------------------

    def _moves(self, final: Sequence[int], order: Sequence[tuple[int, int]]) -> Iterator[Move]:
        holder = {device: n for n, held in enumerate(self._held) for device in bits(held)}
        secured = self._secured(final, holder)
        right = self._by_account(self._right)
        pairs = zip(self._asks, self._held, strict=True)
        spare = [held.bit_count() - ask.wants for ask, held in pairs]
        for taker, device in order:
            giver = holder.get(device)
            if giver is None:
                continue
            spare[giver] -= 1
            account = self._account(self._asks[taker].uid)
            is_by_right = (
                secured[account] < right[account]
                and self._account(self._asks[giver].uid) != account
            )
            secured[account] += self._parts[device]
            is_spare = spare[giver] >= 0
            among = self._among(giver, device, is_at_once=is_by_right or is_spare)
            if among:
                yield Move(
                    device_id=self._ids[device],
                    giver=self._asks[giver].name,
                    taker=self._asks[taker].name,
                    is_by_right=is_by_right,
                    is_spare=is_spare,
                    among=among,
                )

    def _secured(self, final: Sequence[int], holder: Mapping[int, int]) -> dict[str, int]:
        """Parts by account that require no return by others."""
        secured = dict.fromkeys(map(self._account, self._asks_of), 0)
        for number, mask in enumerate(final):
            account = self._account(self._asks[number].uid)
            for device in bits(mask):
                giver = holder.get(device, number)
                if self._account(self._asks[giver].uid) == account:
                    secured[account] += self._parts[device]
        return secured

    def _over_the_limit(self, final: Sequence[int]) -> Iterator[Move]:
        """Moves for users above `max_per_user`, even if no other user waits."""
        taken = 0
        for mask in final:
            taken |= mask
        for uid, numbers in self._asks_of.items():
            most = self._census.people[uid].most_parts
            if most is None:
                continue
            over = self._amount(numbers, self._held) - most
            for number in sorted(numbers, key=lambda each: self._asks[each].priority):
                for device in bits(self._held[number] & ~taken):
                    if over > 0:
                        over -= self._parts[device]
                        yield Move(
                            device_id=self._ids[device],
                            giver=self._asks[number].name,
                            taker=None,
                            is_by_right=True,
                            is_spare=False,
                            among=self._among(number, device, is_at_once=True),
                        )

    def _among(self, giver: int, device: int, *, is_at_once: bool) -> frozenset[DeviceId]:
        """The giver's devices that suit the same tuners; usually without recently assigned ones."""
        alike = self._likes(device)
        return frozenset(
            self._ids[each]
            for each in bits(self._held[giver])
            if self._parts[each] == self._parts[device]
            and (is_at_once or not self._is_fresh(giver, each))
            and (each == device or self._likes(each) == alike)
        )

    def _likes(self, device: int) -> tuple[bool, ...]:
        return tuple(bool(mask >> device & 1) for mask in set(self._suits))

    def _is_fresh(self, number: int, device: int) -> bool:
        since_s = self._asks[number].holds[self._ids[device]]
        return self._now_s - since_s < self._census.hold_s

    # -- sums --------------------------------------------------------------------------------

    def _held_masks(self) -> list[int]:
        """A device claimed by two tuners belongs to the older request."""
        taken = 0
        masks = []
        for ask in self._asks:
            mask = self._mask(frozenset(ask.holds)) & ~taken
            taken |= mask
            masks.append(mask)
        return masks

    def _mask(self, device_ids: frozenset[DeviceId]) -> int:
        mask = 0
        for device_id in device_ids:
            if device_id in self._number:
                mask |= 1 << self._number[device_id]
        return mask

    def _mask_of_size(self, parts: int) -> int:
        return sum(1 << device for device, each in enumerate(self._parts) if each == parts)

    def _by_user(self) -> dict[int, list[int]]:
        """The numbers of each user's requests, users in the order of their oldest request."""
        found: dict[int, list[int]] = {}
        for number, ask in enumerate(self._asks):
            found.setdefault(ask.uid, []).append(number)
        return found

    def _account(self, uid: int) -> str:
        return self._census.people[uid].account

    def _held_by_account(self) -> dict[str, int]:
        amounts = {uid: self._amount(asks, self._held) for uid, asks in self._asks_of.items()}
        return self._by_account(amounts)

    def _by_account(self, amounts: Mapping[int, int]) -> dict[str, int]:
        found = dict.fromkeys(map(self._account, self._asks_of), 0)
        for uid, amount in amounts.items():
            found[self._account(uid)] += amount
        return found

    def _amount(self, numbers: Sequence[int], masks: Sequence[int]) -> int:
        return sum(self._size(masks[number]) for number in numbers)

    def _standing(self, uid: int) -> Standing:
        asks = self._asks_of[uid]
        size = max(self._parts, default=0)
        return Standing(
            held=self._amount(asks, self._held),
            wanted=sum(self._asks[number].wants for number in asks) * size,
            by_right=self._right[uid],
            part=self._part[uid],
        )


def _ranks(uids: Sequence[int], turn: int) -> dict[int, int]:
    """The order among equal users: by age, and one place further each turn."""
    return {uid: (place - turn) % len(uids) for place, uid in enumerate(uids)}
