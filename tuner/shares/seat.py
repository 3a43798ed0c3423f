"""This tuner's seat among the tuners of a machine: its claim, and its assigned devices."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import Device, DeviceId, gpu_of_share
from tuner.devices.locks import default_lock_folder
from tuner.errors import DeviceError
from tuner.host.process_identity import pid_namespace
from tuner.shares.claims import (
    Claim,
    ClaimsRead,
    OwnClaim,
    read_claims,
    walk_warnings,
)
from tuner.shares.decision import decide
from tuner.shares.facts import disputed, parts_of_device, sizes_of, with_locks
from tuner.shares.ledger import Ledger
from tuner.shares.people import census
from tuner.shares.rules import ShareRules, local_time
from tuner.shares.rules_watch import RulesWatch
from tuner.shares.terms import Ask, Decision, Move, Standing
from tuner.shares.words import Account, accounts_of, keeper_text, move_text

#: Interval in seconds at which device-hours are written.
_WRITE_USED_EVERY_S = 30.0

IsForeign = Callable[[Device], bool]
"""Whether a process that is not a tuner's uses a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A device that this tuner must return, with the reason as text."""

    among: frozenset[DeviceId]
    is_by_right: bool
    reason: str


def folder_of(rules: ShareRules) -> Path:
    """Folder of a machine's locks and claims."""
    return rules.folder or default_lock_folder()


class Seat:
    """Claims devices for one study, and computes the assignment like all other tuners.

    Args:
        rules: The machine's rules.
        unit: Number of devices of the study's narrowest trial.
        priority: The study's priority among its user's studies, 0 to 100.
        takes_idle: Whether it also takes devices that no tuner requests: trials are widened.
        now_s: The time in seconds UTC.

    Raises:
        DeviceError: If the folder of claims cannot be used. Also raised when claims are written.
    """

    def __init__(
        self,
        rules: RulesWatch,
        *,
        unit: int,
        priority: int = 50,
        takes_idle: bool = False,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._takes_idle = takes_idle
        self._rules = rules
        self._folder = folder_of(rules.rules)
        self._own = OwnClaim(self._folder)
        self._unit = unit
        self.priority = priority
        self._most: int | None = None
        self._now_s = now_s
        self._since_s = now_s()
        self._waits_since_s: float | None = None
        self._devices: dict[DeviceId, Device] = {}
        #: Parts of the machine's devices, as this process sees them.
        self._known: dict[DeviceId, int] = {}
        self._holds: dict[DeviceId, float] = {}
        self._leaving: frozenset[DeviceId] = frozenset()
        #: Returned since the last update; the next one assigns them.
        self._released: set[DeviceId] = set()
        #: Number that it could use in addition; None for all that suit.
        self._wants: int | None = None
        self._is_foreign: IsForeign | None = None
        self._read = ClaimsRead(claims=())
        self._decision = Decision(allotted={}, moves=(), standings={})
        self._warned: set[str] = set()
        self._ledger = Ledger(self._folder, now_s)
        self._wrote_at_s = now_s()
        #: State of the folder of claims before the last read.
        self._seen: int | None = None
        #: Messages for the user; the caller that shows them clears the list.
        self.notes: list[str] = []

    @property
    def rules(self) -> ShareRules:
        """The current rules."""
        return self._rules.rules.at(local_time(self._now_s()))

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def claims(self) -> tuple[Claim, ...]:
        """As of the last look, the own one included."""
        return self._read.claims

    @property
    def decision(self) -> Decision:
        """As of the last look."""
        return self._decision

    # -- what it has and wants ---------------------------------------------------------------

    def offer(
        self,
        devices: Iterable[Device],
        is_foreign: IsForeign | None = None,
        *,
        most: int | None = None,
        seen: Iterable[Device] = (),
    ) -> None:
        """Sets the devices that suit the study.

        Args:
            devices: All that it could use, including those of others.
            is_foreign: Whether a device without a tuner has foreign processes; None if the study
                ignores these.
            most: Maximum number at a time; None for no limit.
            seen: Further devices of the machine, which do not suit it.
        """
        self._most = most
        self._devices = {device.id: device for device in devices}
        self._known |= {each.id: parts_of_device(each) for each in (*seen, *self._devices.values())}
        self._is_foreign = is_foreign

    def note_held(self, device: Device) -> None:
        """The study has a device from now on; other tuners see it at once."""
        self._holds.setdefault(device.id, self._now_s())
        self._publish()

    def note_released(self, device: Device) -> None:
        """The study has a device no more; other tuners see it at once."""
        if self._holds.pop(device.id, None) is not None:
            self._released.add(device.id)
            self._publish()

    def _publish(self) -> None:
        # The next look tries again, and raises.
        with suppress(DeviceError):
            self._own.write(self._claim())

    def look(self, *, wants: int | None = None, leaving: Collection[DeviceId] = ()) -> None:
        """Writes the claim, reads all claims and computes the assignment.

        Args:
            wants: Number of devices that the study could use now; None for all that suit.
            leaving: Devices that are returned as soon as their trials have saved.
        """
        self._wants = wants
        self._leaving = frozenset(leaving)
        if note := self._rules.look():
            self.notes.append(note)
        self._account()
        is_short = self.wanted > len(self._holds)
        self._waits_since_s = (self._waits_since_s or self._now_s()) if is_short else None
        self._own.write(self._claim())
        self._released.clear()
        self._seen = _changed_at_ns(self._folder)
        self._read = self._claims_read()
        self.notes.extend(walk_warnings(self._read, self._warned))
        self.notes.extend(self._of_other_rules())
        self._decision = self._decide()

    def _claims_read(self) -> ClaimsRead:
        """Who only says that a device is theirs, would keep its true holder from giving it back."""
        read = read_claims(self._folder)
        claims, _ = with_locks(read.claims, self._folder, disputed(read.claims))
        return replace(read, claims=claims)

    @property
    def has_news(self) -> bool:
        """Whether a claim, including its own, has changed since the last update.

        A killed tuner changes nothing, so update at intervals, too.
        """
        return _changed_at_ns(self._folder) != self._seen

    def has_shares_of(self, gpu_id: DeviceId) -> bool:
        """Whether a tuner, this one included, has a share of a GPU that is divided."""
        held = (device_id for claim in self.claims for device_id in claim.holds)
        own = any(gpu_of_share(each) == gpu_id != each for each in self._holds)
        return own or any(gpu_of_share(each) == gpu_id != each for each in held)

    def _account(self) -> None:
        """Accounts for the devices held since the last update."""
        devices = (self._devices.get(device_id) for device_id in self._holds)
        self._ledger.note(sum(parts_of_device(each) / WHOLE for each in devices if each))
        if self._now_s() - self._wrote_at_s >= _WRITE_USED_EVERY_S:
            self._wrote_at_s = self._now_s()
            self._ledger.write()

    @property
    def wanted(self) -> int:
        """Devices that the study could use now."""
        most = len(self._devices) if self._most is None else min(self._most, len(self._devices))
        return most if self._wants is None else min(most, self._wants)

    def _claim(self) -> Claim:
        return Claim(
            pid=os.getpid(),
            pid_namespace=pid_namespace(),
            priority=self.priority,
            since_s=self._since_s,
            wants=self.wanted,
            waits_since_s=self._waits_since_s or self._since_s,
            unit=self._unit,
            suits={each.id: parts_of_device(each) for each in self._devices.values()},
            holds=self._holds,
            leaving=self._leaving,
            rules=self._rules.digest,
        )

    # -- what it may have --------------------------------------------------------------------

    def may_take(self, device: Device) -> bool:
        """Whether a device is this tuner's by the last decision; others may have it still."""
        if device.id in self._released:
            return False
        if device.id in self._decision.allotted.get(self._own.name, frozenset()):
            return True
        return self._takes_idle and not self.is_shared_out(device)

    def why_not(self, device: Device) -> str:
        """Why a device is not available: `ann has it (pid 7; 2 of 2 guaranteed)`."""
        keeper = self._keeper(device.id)
        allotted = self._decision.allotted.get(self._own.name, frozenset())
        if keeper is None and len(allotted) >= self.wanted:
            return "no trial of the study needs it now"
        return keeper_text(keeper, self._decision, self._accounts())

    @property
    def waits_for(self) -> str:
        """The tuners that have the devices that the study could use; empty if none."""
        shared = filter(self.is_shared_out, self._devices.values())
        return "; ".join(dict.fromkeys(map(self.why_not, shared)))

    @property
    def standing(self) -> Standing:
        """This user's standing by the last assignment."""
        return self._decision.standings.get(os.getuid(), Standing())

    @property
    def due(self) -> tuple[Due, ...]:
        """Devices that this tuner must return by the last assignment."""
        return tuple(
            Due(among=move.among, is_by_right=move.is_by_right, reason=self._reason(move))
            for move in self._decision.moves
            if move.giver == self._own.name
        )

    def is_shared_out(self, device: Device) -> bool:
        """Whether another tuner has a device or is to have it."""
        return self._keeper(device.id) is not None

    def _reason(self, move: Move) -> str:
        people = {claim.name: claim.uid for claim in self.claims}
        return move_text(move, self._decision, people, self._accounts())

    def _accounts(self) -> Mapping[int, Account]:
        found = census(self.rules, frozenset(claim.uid for claim in self.claims))
        return accounts_of(found, self._decision)

    def _keeper(self, device_id: DeviceId) -> Claim | None:
        others = [claim for claim in self.claims if claim.name != self._own.name]
        holding = (claim for claim in others if device_id in claim.holds)
        allotted = self._decision.allotted
        awaiting = (each for each in others if device_id in allotted.get(each.name, frozenset()))
        return next(holding, next(awaiting, None))

    def _decide(self) -> Decision:
        asks = [ask_of(claim) for claim in self._read.claims]
        found = census(self.rules, frozenset(ask.uid for ask in asks))
        return decide(asks, self._usable(), found, self._now_s())

    def _usable(self) -> dict[DeviceId, int]:
        """All known devices without foreign processes."""
        found = sizes_of(self._read.claims, self.rules.cpu_slots, self._known)
        if self._is_foreign is None:
            return found
        held = {device_id for claim in self._read.claims for device_id in claim.holds}
        for device_id, device in self._devices.items():
            if device_id not in held and self._is_foreign(device):
                found.pop(device_id, None)
        return found

    def _of_other_rules(self) -> Iterable[str]:
        for claim in self._read.claims:
            if claim.rules != self._rules.digest and claim.name not in self._warned:
                self._warned.add(claim.name)
                yield (
                    f"A tuner of user id {claim.uid} (pid {claim.pid}) follows other rules of "
                    "shares than this one, or a name in them is another user's there, in a "
                    "container. Only equal rules are kept by both: give user ids."
                )

    def close(self) -> None:
        """Removes the claim. Safe to call twice."""
        self._account()
        self._ledger.write()
        self._own.close()


def _changed_at_ns(folder: Path) -> int | None:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return None


def ask_of(claim: Claim) -> Ask:
    """A claim as the decision sees it."""
    return Ask(
        name=claim.name,
        uid=claim.uid,
        priority=claim.priority,
        since_s=claim.since_s,
        holds=claim.holds,
        wants=claim.wants,
        waits_since_s=claim.waits_since_s,
        unit=claim.unit,
        suits=frozenset(claim.suits),
    )
