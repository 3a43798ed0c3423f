"""The devices that a dispatcher can lease out now: removals and returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tuner.devices.allocation.pool import DevicePool
from tuner.devices.allocation.quarantine import Quarantine
from tuner.devices.allocation.standby import Standby
from tuner.devices.allocation.watch import DeviceWatch
from tuner.devices.device import Device, DeviceId, DeviceKind
from tuner.devices.idle_causes import IdleCause
from tuner.devices.packing.learned import Sharing
from tuner.devices.reselection import Reselected

_LOOK_EVERY_S = 5.0
#: On a shared machine, a user's device must not be idle for longer than a second.
_LOOK_AT_SHARES_EVERY_S = 0.5


class DeviceSupply:
    """Removes lost, broken and taken devices from the pool, and adds them again later.

    Args:
        pool: The devices.
        watch: Reads them.
        standby: Detects other users of the devices; None if the study ignores other users.
        sharing: What was learned about trials that share GPUs; None if the study file sets it.
        quarantine: Isolates devices that look broken, and tests them.
    """

    def __init__(
        self,
        *,
        pool: DevicePool,
        watch: DeviceWatch,
        standby: Standby | None,
        sharing: Sharing | None,
        quarantine: Quarantine | None,
    ) -> None:
        self.pool = pool
        self.watch = watch
        self._standby = standby
        self._sharing = sharing
        self._quarantine = quarantine or Quarantine()
        self._looked_at_s = self._now_s = 0.0
        #: Removed devices that attempts still hold; called when the last attempt has released the
        #: device.
        self._leaving: dict[DeviceId, Callable[[], None]] = {}
        #: Devices in other users' shares, with the user; None if the machine is not shared.
        self._shares: Mapping[DeviceId, str] | None = None
        #: Devices that the database has as leased to another dispatcher, with that dispatcher.
        self._leased_elsewhere: Mapping[DeviceId, str] = {}
        #: Those of them that were set aside for it.
        self._kept_off: set[DeviceId] = set()
        #: Messages for the user; the caller that shows them clears the list.
        self.notes: list[str] = []

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices that trials get, including faulty ones."""
        others = {device.id for device in self._standby.devices} if self._standby else set()
        return tuple(device for device in self.pool.devices if device.id not in others)

    @property
    def may_take_up_more(self) -> bool:
        """Whether devices in use by others may become free."""
        return self._standby is not None and bool(self._standby.devices)

    @property
    def may_grow(self) -> bool:
        """Whether a device that cannot be leased out now may return.

        A device that fell off the bus usually needs a reboot, so its return is not expected.
        """
        may_heal = any(each.id not in self.watch.lost for each in self._quarantine.devices)
        return self.may_take_up_more or may_heal

    def keep_apart(self, devices: Sequence[Device], reason: str, now_s: float) -> None:
        """Quarantines devices until they pass a test."""
        for device in devices:
            if device in self.pool.devices and device.kind is not DeviceKind.CPU:
                self.pool.set_aside(device)
                self._quarantine.put(device, reason, now_s)
                self.notes.append(
                    f"{device.label} looks broken, and is kept apart until it passes a test: "
                    f"{reason}"
                )

    def close(self) -> None:
        """Ends running device tests."""
        self._quarantine.close()

    def look(self, now_s: float) -> bool:
        """Checks for lost and returned devices, at most once per interval.

        Returns:
            Whether a lost device is back: trials that were too wide may fit now.
        """
        is_one_back = False
        self._now_s = now_s
        self.withdraw_lost()
        for device in self._quarantine.look(now_s):
            if device.id in self.watch.lost:
                is_one_back |= self._welcome_back(device)
            elif device in self.pool.devices:
                self._hand_out(device)
                self.notes.append(f"{device.label} has passed its test and gets trials again.")
        self._take_up(now_s)
        return is_one_back

    def _welcome_back(self, device: Device) -> bool:
        """Readmits a device that passed its test; returns whether the driver sees it, too."""
        if self.watch.is_back(device):
            self._hand_out(device)
            self.notes.append(f"{device.label} is back, has passed its test and gets trials again.")
            return True
        reason = self.watch.lost[device.id]
        self._quarantine.put(device, reason, self._now_s, is_lost=True)
        return False

    def give_back(self) -> None:
        """Returns removed devices that no attempt holds any more."""
        if not self._leaving:
            return
        held = {device.id for lease in self.pool.leases for device in lease.devices}
        for device_id in [each for each in self._leaving if each not in held]:
            self._leaving.pop(device_id)()

    def change(self, chosen: Reselected, give_back: Callable[[Device], None]) -> None:
        """Replaces the study's devices. Running attempts finish.

        Args:
            chosen: The new devices, and what else is needed.
            give_back: Called with each removed device once nothing runs on it.
        """
        wanted = {device.id: device for device in chosen.selection.devices}
        for device in self.pool.devices:
            if wanted.get(device.id) != device:
                self.pool.withdraw(device)
                self._quarantine.forget(device)
                self._leaving[device.id] = partial(give_back, device)
        for device in chosen.selection.devices:
            self._leaving.pop(device.id, None)
            self._take(device)
        for device, _ in chosen.selection.standby:
            self._learn_of(device)
        if chosen.probe is not None:
            self.watch.use(chosen.probe)
        self._standby = chosen.standby
        self.give_back()

    def _take(self, device: Device) -> None:
        self._learn_of(device)
        if device not in self.pool.devices or not self._quarantine.holds(device):
            self._hand_out(device)

    def _learn_of(self, device: Device) -> None:
        if self._sharing is not None:
            self._sharing.add(device)

    # -- shares of other users ---------------------------------------------------------------

    @property
    def standby_devices(self) -> tuple[Device, ...]:
        """Devices that the study may use but does not have now."""
        return self._standby.devices if self._standby else ()

    def is_apart(self, device: Device) -> bool:
        """Whether a device looks broken and waits for a test."""
        return self._quarantine.holds(device)

    def reserve(self, device: Device) -> None:
        """Reserves a device, which is being returned: no further trial starts on it."""
        self.pool.set_aside(device)
        self._kept_off.discard(device.id)

    def lend(self, device: Device, reason: str) -> None:
        """Hands a reserved, empty device over to another user.

        Args:
            device: The device.
            reason: Why, as text.
        """
        if self._standby is not None and device in self.pool.devices:
            self._standby.add(device, reason)

    def keep(self, device: Device) -> None:
        """Cancels a reservation: the device stays here."""
        if device in self.pool.devices and not self._quarantine.holds(device):
            self._hand_out(device)

    def note_shares(self, shares: Mapping[DeviceId, str]) -> None:
        """Sets the devices that other users have by the machine's share rules, with the reasons."""
        self._shares = shares
        self._looked_at_s = -_LOOK_EVERY_S

    def is_taken(self, device: Device) -> bool:
        """Whether another user has started to use a device; if so, removes it from the pool."""
        reason = self._standby.is_taken(device) if self._standby else None
        if self._standby is None or reason is None:
            return False
        self.pool.set_aside(device)
        self._standby.add(device, reason)
        self.notes.append(f"{device.label} is left alone: {reason}. It is taken up once free.")
        return True

    def _take_up(self, now_s: float) -> None:
        """Checks at intervals whether devices in use by others are free."""
        every_s = _LOOK_EVERY_S if self._shares is None else _LOOK_AT_SHARES_EVERY_S
        if self._standby is None or now_s - self._looked_at_s < every_s:
            return
        self._looked_at_s = now_s
        n_aside = sum(device.id not in self._kept_off for device in self.pool.aside)
        for device in self._standby.look(len(self.pool.devices) - n_aside):
            self._hand_out(device)
            self.notes.append(f"{device.label} is free and taken up.")

    # -- leases of other dispatchers ---------------------------------------------------------

    def note_leased(self, holders: Mapping[DeviceId, str]) -> None:
        """Sets the devices that other dispatchers have by the database, with their holders.

        They get no trial while that lasts: the database would refuse the lease.
        """
        before, self._leased_elsewhere = self._leased_elsewhere, holders
        kept: dict[str, list[str]] = {}
        for device in self.pool.devices:
            if device.id in holders and device.id not in before:
                self._keep_off(device)
                kept.setdefault(holders[device.id], []).append(device.label)
            elif device.id in before and device.id not in holders:
                self._end_keeping_off(device)
        for holder, labels in kept.items():
            self.notes.append(_leased_text(labels, holder))

    def _keep_off(self, device: Device) -> None:
        if self.pool.hands_out(device):
            self.pool.set_aside(device)
            self._kept_off.add(device.id)

    def _end_keeping_off(self, device: Device) -> None:
        if device.id in self._kept_off:
            self._kept_off.discard(device.id)
            self.keep(device)
            self.notes.append(f"{device.label} is leased to no other dispatcher any more.")

    def _hand_out(self, device: Device) -> None:
        """Lets trials have a device, unless it is leased to another dispatcher."""
        if device in self.pool.devices:
            self.pool.restore(device)
        else:
            self.pool.add(device)
        if device.id in self._leased_elsewhere:
            self._keep_off(device)

    @property
    def left_to_others(self) -> Mapping[str, str]:
        """Devices of the study in use by others, by label, with the user of each."""
        found = {
            device.label: self._leased_elsewhere[device.id]
            for device in self.pool.aside
            if device.id in self._leased_elsewhere
        }
        if self._standby is not None:
            reasons = {**self._standby.reasons, **(self._shares or {})}
            found |= {device.label: reasons[device.id] for device in self._standby.devices}
        return found

    @property
    def idle(self) -> dict[DeviceId, IdleCause | None]:
        """Devices that no attempt holds, each with its fault, or None."""
        pool = self.pool
        found: dict[DeviceId, IdleCause | None] = {device.id: None for device in pool.free}
        apart = (device for device in pool.aside if not pool.leases_on(device))
        found |= dict.fromkeys((device.id for device in apart), IdleCause.QUARANTINED)
        kept = [each for each in found if each in self._kept_off and each in self._leased_elsewhere]
        found |= dict.fromkeys(kept, IdleCause.TAKEN)
        taken = self._standby.devices if self._standby else ()
        found |= dict.fromkeys((device.id for device in taken), IdleCause.TAKEN)
        if self._shares:
            shared = (device.id for device in taken if device.id in self._shares)
            found |= dict.fromkeys(shared, IdleCause.SHARED)
        return found | dict.fromkeys(self.watch.lost, IdleCause.LOST)

    def withdraw_lost(self) -> None:
        """Removes lost devices from the pool."""
        if not self.watch.lost:
            return
        for device in self.pool.devices:
            if device.id in self.watch.lost:
                reason = self.watch.lost[device.id]
                self.pool.withdraw(device)
                self._quarantine.put(device, reason, self._now_s, is_lost=True)
                self.notes.append(f"{reason} It gets no trials until it is back.")


def _leased_text(labels: Sequence[str], holder: str) -> str:
    are, get = ("is", "gets it") if len(labels) == 1 else ("are", "gets them")
    return (
        f"{', '.join(labels)} {are} still leased to the dispatcher on {holder}, whose process "
        f"cannot be checked from here, as before a restart of this container. No trial {get} "
        "until that dispatcher ends or has sent no heartbeat for 60 s."
    )
