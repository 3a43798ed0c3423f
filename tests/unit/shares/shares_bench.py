"""A machine with users in virtual time: tuners that do what the decision says, and a watch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import DeviceId
from tuner.shares.decision import decide
from tuner.shares.people import Census, Person
from tuner.shares.terms import Ask, Decision


def ids(n_devices: int) -> list[DeviceId]:
    return [DeviceId(f"GPU-{number:02}") for number in range(n_devices)]


def whole(n_devices: int) -> dict[DeviceId, int]:
    return dict.fromkeys(ids(n_devices), WHOLE)


def census_of(
    uids: Iterable[int],
    guaranteed: Mapping[int, float] | None = None,
    *,
    weights: Mapping[int, float] | None = None,
    most: float | None = None,
    hold_s: float = 120.0,
) -> Census:
    guaranteed, weights = guaranteed or {}, weights or {}
    return Census(
        people={
            uid: Person(
                uid=uid,
                account=str(uid) if uid in guaranteed else "*",
                weight=weights.get(uid, 1.0),
                most_parts=None if most is None else round(most * WHOLE),
            )
            for uid in uids
        },
        guarantees={str(uid): round(n * WHOLE) for uid, n in guaranteed.items()},
        hold_s=hold_s,
    )


def ask(
    uid: int,
    wants: int,
    n_devices: int = 8,
    *,
    holds: Iterable[DeviceId] = (),
    held_since_s: float = 0.0,
    name: str | None = None,
    suits: Iterable[DeviceId] | None = None,
    **more: float,
) -> Ask:
    return Ask(
        name=name or f"claim-{uid}",
        uid=uid,
        wants=wants,
        holds=dict.fromkeys(holds, held_since_s),
        suits=frozenset(ids(n_devices) if suits is None else suits),
        **more,  # type: ignore[arg-type]
    )


def counts(decision: Decision) -> dict[str, int]:
    return {name: len(devices) for name, devices in decision.allotted.items()}


@dataclass(kw_only=True)
class Machine:
    """Tuners that all act on each decision; a trial takes `save_s` until it has ended."""

    n_devices: int
    census: Census
    #: The size of each device, where they are no whole ones.
    parts: dict[DeviceId, int] = field(default_factory=dict)
    save_s: float = 0.0
    now_s: float = 0.0
    holds: dict[str, dict[DeviceId, float]] = field(default_factory=dict)
    #: By device: when it will be free, and of whom.
    leaving: dict[DeviceId, tuple[float, str]] = field(default_factory=dict)
    asks: dict[str, Ask] = field(default_factory=dict)
    #: Since when each has wanted more than it has.
    waits: dict[str, float] = field(default_factory=dict)
    #: (time, device, tuner) of each device that somebody got.
    taken: list[tuple[float, DeviceId, str]] = field(default_factory=list)
    device_s: Counter[str] = field(default_factory=Counter)
    n_moves: int = 0

    def ask(self, one: Ask) -> None:
        self.asks[one.name] = one
        holds = self.holds.setdefault(one.name, {})
        if one.wants <= len(holds):
            self.waits.pop(one.name, None)
        self.waits.setdefault(one.name, self.now_s)

    def current(self) -> list[Ask]:
        return [
            Ask(
                name=one.name,
                uid=one.uid,
                priority=one.priority,
                since_s=one.since_s,
                holds=dict(self.holds[one.name]),
                wants=one.wants,
                waits_since_s=self.waits.get(one.name, 0.0),
                unit=one.unit,
                suits=one.suits,
            )
            for one in self.asks.values()
        ]

    def look(self, acting: Collection[str] | None = None) -> Decision:
        """One look of every tuner: gives back, and takes what is free and its own.

        Args:
            acting: The tuners that do something this time; None for all.
        """
        for device_id, (at_s, name) in list(self.leaving.items()):
            if at_s <= self.now_s:
                del self.leaving[device_id]
                self.holds[name].pop(device_id, None)
        for name, holds in self.holds.items():
            if len(holds) >= self.asks[name].wants:
                self.waits.pop(name, None)
            else:
                self.waits.setdefault(name, self.now_s)
        parts = self.parts or whole(self.n_devices)
        decision = decide(self.current(), parts, self.census, self.now_s)
        for move in decision.moves:
            if acting is None or move.giver in acting:
                self._give_back(move.giver, move.among, decision)
        held = {device_id for holds in self.holds.values() for device_id in holds}
        for name, allotted in decision.allotted.items():
            may_act = acting is None or name in acting
            for device_id in sorted(allotted - held) if may_act else ():
                self.holds[name][device_id] = self.now_s
                self.taken.append((self.now_s, device_id, name))
        return decision

    def run(self, seconds: float, look_every_s: float) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.look()
            for name, holds in self.holds.items():
                self.device_s[name] += len(holds) * look_every_s  # type: ignore[assignment]
            self.now_s += look_every_s

    def _give_back(self, giver: str, among: frozenset[DeviceId], decision: Decision) -> None:
        n_due = sum(move.giver == giver for move in decision.moves)
        n_leaving = sum(name == giver for _, name in self.leaving.values())
        left = sorted(among - set(self.leaving))
        if n_leaving < n_due and left:
            is_idle = len(self.holds[giver]) - n_leaving > self.asks[giver].wants
            self.leaving[left[0]] = (self.now_s + self.save_s * (not is_idle), giver)
            self.n_moves += 1


def amounts(decision: Decision, asks: Sequence[Ask]) -> Counter[int]:
    """Devices that each user may have."""
    found: Counter[int] = Counter()
    for one in asks:
        found[one.uid] += len(decision.allotted[one.name])
    return found
