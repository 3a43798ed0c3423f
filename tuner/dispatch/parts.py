"""Builds the parts of a dispatcher from its setup."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from tuner.checkpoints.trial_folders import TrialFolders
from tuner.devices.reselection import Reselection
from tuner.dispatch.attempts.activity import Activity
from tuner.dispatch.attempts.attempt_table import AttemptTable
from tuner.dispatch.attempts.endings.conclusion import Conclusion
from tuner.dispatch.attempts.endings.device_release import DeviceRelease
from tuner.dispatch.attempts.endings.trial_outcome import TrialOutcomes
from tuner.dispatch.attempts.launching import AttemptStart
from tuner.dispatch.attempts.stall_detector import Stalls
from tuner.dispatch.attempts.stopping import AttemptStop
from tuner.dispatch.attempts.widening import Widener
from tuner.dispatch.attempts.worker_messages import Talk
from tuner.dispatch.early_stop import EarlyStop
from tuner.dispatch.notice_queue import NoticeQueue
from tuner.dispatch.notices import View
from tuner.dispatch.object_store.store import ObjectStore
from tuner.dispatch.study_end import StudyEnd
from tuner.dispatch.supply.budget_tracker import BudgetTracker
from tuner.dispatch.supply.device_changes import DeviceChanges
from tuner.dispatch.supply.device_filling import DeviceFilling
from tuner.dispatch.supply.leasing import Leasing
from tuner.dispatch.supply.loans import Loans
from tuner.dispatch.supply.stranded_trials import StrandedTrials
from tuner.dispatch.supply.trial_source import TrialSource
from tuner.dispatch.terms import Terms
from tuner.dispatch.upkeep.allocation_time import AllocationTime
from tuner.dispatch.upkeep.checkpoint_sweeper import SweepThread
from tuner.dispatch.upkeep.checkpoint_sync import CheckpointSync
from tuner.dispatch.upkeep.commands import Orders
from tuner.dispatch.upkeep.commands_applied import CommandsApplied
from tuner.dispatch.upkeep.database_outage import Outage
from tuner.dispatch.upkeep.database_rescue import Rescue
from tuner.dispatch.upkeep.device_usage import Usage
from tuner.dispatch.upkeep.disk_space import Room
from tuner.dispatch.upkeep.peers import Others
from tuner.dispatch.upkeep.record_writer import RecordWriter
from tuner.dispatch.upkeep.telemetry_thread import Sampler
from tuner.host.clock import Clock
from tuner.launch.plan import TrialPlan
from tuner.launch.protocols import Channel, Launcher
from tuner.search.study import StudySearch
from tuner.shares.seat import Seat
from tuner.store.records.recorder import Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherSetup:
    """The objects that a dispatcher works with.

    Args:
        search: The study: suggests trials and decides which to stop.
        recorder: Writes all records.
        launcher: Starts and ends workers.
        channel: The channel to which workers report.
        leasing: Leases devices to trials.
        plan: Settings that all attempts share.
        terms: Budget and time limits.
        view: Shows notices and progress.
        clock: The time.
        activity: Measures the activity of attempts; None if it is not measured.
        housekeeping: Removes checkpoints that the study does not keep; None keeps all.
        saving: Records checkpoints in the database; None records none.
        reselection: Chooses other devices for `tuner set devices=`; None if they are fixed.
        sampler: Reads device telemetry; None reads none.
        folders: Keeps the files of trials apart; None if trials have no files.
        seat: This dispatcher's place among other users' tuners; None if the machine is not divided.
        objects: Checkpoints in an object store; None if the study has no store.
    """

    search: StudySearch
    recorder: Recorder
    launcher: Launcher
    channel: Channel
    leasing: Leasing
    plan: TrialPlan
    terms: Terms
    view: View
    clock: Clock
    activity: Activity | None = None
    housekeeping: SweepThread | None = None
    saving: CheckpointSync | None = None
    reselection: Reselection | None = None
    sampler: Sampler | None = None
    folders: TrialFolders | None = None
    seat: Seat | None = None
    objects: ObjectStore | None = None


class DispatcherParts:
    """Builds and connects the parts.

    Args:
        setup: The objects that the dispatcher works with.
    """

    def __init__(self, setup: DispatcherSetup) -> None:
        self._setup = setup
        self.started_at = setup.clock.now()
        self.attempts = AttemptTable()
        self.telling = NoticeQueue(setup.view, self.started_at.monotonic_s)
        self._say = self.telling.say
        self.clearing = DeviceRelease(self.attempts, setup.leasing, self._say)
        self.room = Room(setup.plan.files.root, self._say)
        self.others = self._new_others()
        self.stranding = StrandedTrials(setup.search, setup.leasing, self.others, self._say)
        self.allocation = self._new_allocation()
        self.usage = Usage(setup.recorder, setup.sampler)
        self.spending = self._new_spending()
        self.outage = Outage(setup.recorder, self._say)
        self.rescue = Rescue(setup.recorder, setup.search)
        self.talk = self._new_talk()
        self.stopping = self._new_stopping()
        self.widening = self._new_widening() if setup.terms.widens else None
        self.loans = self._new_loans(setup.seat) if setup.seat is not None else None
        self.settling = self._new_settling()
        self.end = self._new_end()
        self.asking = self._new_asking()
        self.launching = self._new_launching()
        self.orders = Orders(setup.recorder.commands, self._say)
        self.conclusion = self._new_conclusion()
        self.early_stop = self._new_early_stop()
        self.filling = self._new_filling()
        self.commands = self._new_commands()
        self.writer = self._new_writer()

    def _new_allocation(self) -> AllocationTime:
        saving = self._setup.saving
        return AllocationTime(
            self._setup.terms.allocation,
            started_at=self.started_at,
            first_save_s=(lambda: saving.first_save_s) if saving else tuple,
        )

    def _new_others(self) -> Others:
        return Others(
            self._setup.search,
            self._setup.recorder.fleet,
            self._setup.leasing.supply,
            self._say,
            now=self.started_at,
            counts_devices=self._setup.terms.budget.counts_devices,
        )

    def _new_spending(self) -> BudgetTracker:
        return BudgetTracker(
            self._setup.terms.budget,
            search=self._setup.search,
            recorder=self._setup.recorder,
            usage=self.usage,
            live=self.attempts,
            started_at=self.started_at,
            are_others_here=lambda: bool(self.others.places),
            say=self._say,
        )

    def _new_talk(self) -> Talk:
        return Talk(
            search=self._setup.search,
            recorder=self._setup.recorder,
            channel=self._setup.channel,
            leasing=self._setup.leasing,
            plan=self._setup.plan,
            terms=self._setup.terms,
            outage=self.outage,
            stop=lambda reason: self.end.close(reason),
            say=self._say,
        )

    def _new_stopping(self) -> AttemptStop:
        activity = self._setup.activity
        is_working = activity.is_working if activity else lambda live: True
        return AttemptStop(
            recorder=self._setup.recorder,
            launcher=self._setup.launcher,
            channel=self._setup.channel,
            terms=self._setup.terms,
            stalls=Stalls(self._setup.terms.stall_timeout_s, is_working),
        )

    def _new_widening(self) -> Widener:
        return Widener(
            search=self._setup.search,
            leasing=self._setup.leasing,
            stopping=self.stopping,
            recorder=self._setup.recorder,
            files=self._setup.plan.files,
            say=self._say,
        )

    def _new_loans(self, seat: Seat) -> Loans:
        return Loans(
            seat=seat,
            leasing=self._setup.leasing,
            stopping=self.stopping,
            recorder=self._setup.recorder,
            files=self._setup.plan.files,
            say=self._say,
        )

    def _new_settling(self) -> TrialOutcomes:
        return TrialOutcomes(
            search=self._setup.search,
            recorder=self._setup.recorder,
            leasing=self._setup.leasing,
            files=self._setup.plan.files,
            terms=self._setup.terms,
            saving=self._setup.saving,
            say=self._say,
            folders=self._setup.folders,
        )

    def _new_end(self) -> StudyEnd:
        return StudyEnd(
            search=self._setup.search,
            recorder=self._setup.recorder,
            leasing=self._setup.leasing,
            spending=self.spending,
            stranding=self.stranding,
            others=self.others,
            outage=self.outage,
            room=self.room,
            allocation=self.allocation,
        )

    def _new_asking(self) -> TrialSource:
        return TrialSource(
            search=self._setup.search,
            settling=self.settling,
            spending=self.spending,
            leasing=self._setup.leasing,
            fleet=self._setup.recorder.fleet,
            usage=self.usage,
            live=self.attempts,
            clock=self._setup.clock,
            why_no_more=self.end.why_no_more,
            is_repeatable=self._setup.terms.is_repeatable,
            restores=self._setup.objects.restores if self._setup.objects else None,
        )

    def _new_launching(self) -> AttemptStart:
        return AttemptStart(
            recorder=self._setup.recorder,
            launcher=self._setup.launcher,
            channel=self._setup.channel,
            leasing=self._setup.leasing,
            plan=self._setup.plan,
            timeout_s=self._setup.terms.launch_timeout_s,
            folders=self._setup.folders,
        )

    def _new_conclusion(self) -> Conclusion:
        return Conclusion(
            search=self._setup.search,
            recorder=self._setup.recorder,
            channel=self._setup.channel,
            leasing=self._setup.leasing,
            launching=self.launching,
            settling=self.settling,
            widening=self.widening,
            room=self.room,
            telling=self.telling,
            end=self.end,
            attempts=self.attempts,
            stop_grace_s=self._setup.terms.stop_grace_s,
        )

    def _new_early_stop(self) -> EarlyStop:
        return EarlyStop(
            end=self.end,
            conclusion=self.conclusion,
            stopping=self.stopping,
            rescue=self.rescue,
            telling=self.telling,
            attempts=self.attempts,
            grace_s=self._setup.terms.stop_grace_s,
            allocation=self.allocation,
        )

    def _new_filling(self) -> DeviceFilling:
        return DeviceFilling(
            search=self._setup.search,
            leasing=self._setup.leasing,
            asking=self.asking,
            launching=self.launching,
            widening=self.widening,
            stranding=self.stranding,
            spending=self.spending,
            orders=self.orders,
            room=self.room,
            usage=self.usage,
            telling=self.telling,
            end=self.end,
            early_stop=self.early_stop,
            clock=self._setup.clock,
            attempts=self.attempts,
        )

    def _new_commands(self) -> CommandsApplied:
        setup = self._setup
        return CommandsApplied(
            orders=self.orders,
            recorder=setup.recorder,
            spending=self.spending,
            device_changes=DeviceChanges(setup.reselection, setup.leasing, setup.recorder),
            leasing=setup.leasing,
            usage=self.usage,
            others=self.others,
            stopping=self.stopping,
            early_stop=self.early_stop,
            end=self.end,
            telling=self.telling,
            attempts=self.attempts,
            loans=self.loans,
        )

    def _new_writer(self) -> RecordWriter:
        return RecordWriter(
            recorder=self._setup.recorder,
            search=self._setup.search,
            leasing=self._setup.leasing,
            outage=self.outage,
            rescue=self.rescue,
            early_stop=self.early_stop,
            end=self.end,
            telling=self.telling,
            clock=self._setup.clock,
            commit_every_s=self._setup.terms.commit_every_s,
            started_at=self.started_at,
        )


def prepare_search(setup: DispatcherSetup) -> None:
    """Gives the search the paths of checkpoints, and which trials fit on the devices here."""
    folders, recorder = setup.folders, setup.recorder
    begun_at = partial(_begun_at, folders, recorder) if folders else None
    uploads = recorder.uploads if setup.objects else None
    setup.search.copy_states(setup.plan.files, begun_at, uploads)
    setup.search.take_only(setup.leasing.could_ever_fit)


def _begun_at(
    folders: TrialFolders, recorder: Recorder, number: int, trial_id: int
) -> datetime | None:
    return folders.begun_at(number, partial(recorder.history.begun_at, trial_id))
