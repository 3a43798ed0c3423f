"""Launches the processes of an attempt on its leased devices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tuner.checkpoints.trial_folders import TrialFolders
from tuner.dispatch.attempts.live_attempt import LiveAttempt, Rank, Step
from tuner.dispatch.supply.grants import Grant
from tuner.dispatch.supply.leasing import Leasing
from tuner.domain.attempt import Attempt, Cause, Ending, Outcome
from tuner.errors import LaunchError
from tuner.host.clock import Instant
from tuner.launch.local_host.oom_kills import count_oom_kills
from tuner.launch.plan import TrialPlan
from tuner.launch.protocols import Channel, Launcher
from tuner.store.records.recorder import Recorder
from tuner.store.schema.statements import in_utc


class AttemptStart:
    """Records a lease, and launches the attempt's processes once the record is written.

    Args:
        recorder: Writes leases.
        launcher: Starts processes.
        channel: The channel to which workers report.
        leasing: Is notified of launches.
        plan: Settings that all attempts share.
        timeout_s: Seconds from launch to the worker's hello.
        folders: Marks a trial's folder as its own; None if trials write no files.
    """

    def __init__(
        self,
        *,
        recorder: Recorder,
        launcher: Launcher,
        channel: Channel,
        leasing: Leasing,
        plan: TrialPlan,
        timeout_s: float,
        folders: TrialFolders | None,
    ) -> None:
        self._recorder = recorder
        self._launcher = launcher
        self._channel = channel
        self._leasing = leasing
        self._plan = plan
        self._timeout_s = timeout_s
        self._folders = folders

    def intend(self, now: Instant, grant: Grant) -> LiveAttempt:
        """Records the intent to launch a trial; the launch waits until this is written."""
        asked, number = grant.candidate.asked, grant.candidate.attempt_number
        attempt = Attempt(
            trial_id=asked.trial_id,
            trial_number=asked.number,
            number=number,
            seed=self._plan.seed_of(asked.number, number),
            leased_at=now.utc,
        )
        log = self.log_of(attempt)
        self._recorder.lease(attempt, grant.lease, params=asked.params, log_path=str(log))
        return LiveAttempt(
            attempt=attempt,
            grant=grant,
            params=asked.params,
            leased_at_s=now.monotonic_s,
            n_oom_kills=count_oom_kills(),
        )

    def launch(self, now: Instant, live: LiveAttempt) -> Ending | None:
        """Launches the processes of an attempt; returns an ending if this fails."""
        log = self.log_of(live.attempt)
        live.wait_for(Step.TIME_OUT, now.monotonic_s + self._timeout_s)
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            self._mark_folder(live)
            token = self._channel.expect(live.attempt.id)
            requests = self._plan.requests(
                live.attempt,
                live.grant.lease,
                live.params,
                address=self._channel.address,
                token=token,
                port=self._launcher.free_port() if self._plan.is_ddp else 0,
            )
            pids = self._launcher.launch(requests)
        except (LaunchError, OSError) as error:
            self._channel.dismiss(live.attempt.id)
            return Ending(outcome=Outcome.FAILED_TO_START, cause=Cause.LAUNCH, detail=str(error))
        live.attempt = replace(live.attempt, pid=pids[0])
        live.ranks = [Rank(number=number, pid=pid) for number, pid in enumerate(pids)]
        self._leasing.launched(live.grant, live.pids, now.monotonic_s)
        return None

    def _mark_folder(self, live: LiveAttempt) -> None:
        if self._folders is None:
            return
        attempt = live.attempt
        begins_at = in_utc(attempt.leased_at) if attempt.number == 1 else None
        self._folders.begin(attempt.trial_number, begins_at, live.params)

    def log_of(self, attempt: Attempt, rank: int = 0) -> Path:
        """Path of the log of one rank."""
        return self._plan.files.log(attempt.trial_number, attempt.number, rank)
