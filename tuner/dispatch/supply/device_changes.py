"""Changes a study's devices while it runs (`tuner set devices=[0,1]`)."""

from __future__ import annotations

from tuner.devices.reselection import Reselection
from tuner.dispatch.supply.leasing import Leasing
from tuner.domain.messages import Json
from tuner.errors import TunerError
from tuner.store.records.recorder import Recorder


class Refused(TunerError):
    """The requested devices are not available; nothing has changed."""


class DeviceChanges:
    """Changes the devices of the study.

    Args:
        reselection: Chooses and claims devices; None if the devices are fixed.
        leasing: Leases devices to trials.
        recorder: Has the device records.
    """

    def __init__(
        self, reselection: Reselection | None, leasing: Leasing, recorder: Recorder
    ) -> None:
        self._reselection = reselection
        self._leasing = leasing
        self._recorder = recorder

    def carry_out(self, value: Json) -> str:
        """Applies a change. Removed devices get no further trial and are returned when free.

        Args:
            value: As `devices` in a study file.

        Returns:
            What has changed, as text.

        Raises:
            Refused: With the reason.
            Unavailable: If the database does not answer now; then nothing has changed.
        """
        if self._reselection is None:
            raise Refused("The devices of this study cannot be changed.")
        before = self._leasing.supply.devices
        try:
            chosen = self._reselection.choose(value, before)
        except ValueError as error:
            raise Refused(f"devices {error}") from error
        except TunerError as error:
            raise Refused(str(error)) from error
        standby = [device for device, _ in chosen.selection.standby]
        try:
            self._recorder.add_devices([*chosen.selection.devices, *standby])
        except BaseException:
            for device in chosen.selection.devices:
                if device not in before:
                    self._reselection.release(device)
            raise
        self._leasing.supply.change(chosen, self._reselection.release)
        return self._told(before=[device.label for device in before])

    def _told(self, *, before: list[str]) -> str:
        now = [device.label for device in self._leasing.supply.devices]
        dropped = [label for label in before if label not in now]
        words = f"It has {', '.join(now)} now"
        if dropped:
            get, are = ("gets", "is") if len(dropped) == 1 else ("get", "are")
            words += (
                f"; {', '.join(dropped)} {get} no trial any more and {are} given back when what "
                "runs there has ended"
            )
        return f"{words}."
