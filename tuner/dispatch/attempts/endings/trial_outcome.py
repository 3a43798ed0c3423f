"""Turns the ending of an attempt into the trial's state: over, paused or queued for a retry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tuner.checkpoints.layout import newest_whole
from tuner.checkpoints.paths import StudyFiles
from tuner.checkpoints.trial_folders import TrialFolders
from tuner.dispatch.attempts.endings.attempt_ending import completed
from tuner.dispatch.attempts.endings.lost_attempts import LostAttempts
from tuner.dispatch.attempts.endings.nothing_left import NothingLeft
from tuner.dispatch.attempts.endings.retries import Retries
from tuner.dispatch.attempts.endings.unheard_verdicts import UnheardVerdicts
from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.dispatch.supply.grants import Candidate
from tuner.dispatch.supply.leasing import Leasing
from tuner.dispatch.terms import Terms
from tuner.dispatch.upkeep.checkpoint_sync import CheckpointSync
from tuner.dispatch.upkeep.disk_space import met_full_disk
from tuner.domain.attempt import Attempt, Cause, Ending, Outcome
from tuner.domain.messages import Action
from tuner.search.asked_trial import AskedTrial
from tuner.search.study import StudySearch
from tuner.store.records.recorder import Recorder


class TrialOutcomes:
    """Records trial outcomes in the study and queues retries.

    Args:
        search: The study.
        recorder: Has earlier attempts.
        leasing: The queue of trials that wait for devices.
        files: Paths of checkpoints.
        terms: Retries, and what counts as a trial's value.
        saving: Knows whether a checkpoint of another machine is present; None if this is not
            checked.
        say: Shows a message to the user.
        folders: Removes other trials' files from trial folders; None if there are no folders.
    """

    def __init__(
        self,
        *,
        search: StudySearch,
        recorder: Recorder,
        leasing: Leasing,
        files: StudyFiles,
        terms: Terms,
        saving: CheckpointSync | None,
        say: Callable[[str], None],
        folders: TrialFolders | None,
    ) -> None:
        self._search = search
        self._recorder = recorder
        self._leasing = leasing
        self._files = files
        self._terms = terms
        self._retries = Retries(terms.retries)
        self._saving = saving
        self._say = say
        self._folders = folders
        self._lost = LostAttempts(search=search, recorder=recorder, files=files)
        self._unheard = UnheardVerdicts()
        self._nothing_left = NothingLeft(search=search, recorder=recorder, files=files, say=say)

    def candidate(self, asked: AskedTrial) -> Candidate | None:
        """Builds a queue entry for a trial, with what its earlier attempts left.

        Returns:
            None if the trial has failed instead, because too many of its attempts were lost.
        """
        n_before = 0 if asked.is_new else self._recorder.history.attempts_of(asked.trial_id)
        self._prepare_folder(asked, n_before)
        if n_before and self._is_given_up(asked, n_before):
            return None
        if loss := self._search.scheduler.hand_over(asked.trial_id):
            self._say(loss)
        if n_before:
            endings = self._recorder.history.endings_of(asked.trial_id)
            its_own = [each for each in endings if not met_full_disk(each)]
            self._retries.recall(asked.trial_id, its_own)
        if n_before and newest_whole(self._files.checkpoints(asked.number)) is None:
            self._search.steps.starts_over(asked.trial_id)
        if n_before and self._saving is not None:
            loss = self._saving.resume(asked.trial_id, asked.number)
            if loss:
                self._say(loss)
        return Candidate(
            asked=asked,
            attempt_number=n_before + 1,
            is_alone=self._retries.needs_room(asked.trial_id),
        )

    def has_files(self, trial_number: int) -> bool:
        """Whether a program has written anything that a later attempt may continue from."""
        folder = self._files.checkpoints(trial_number)
        return folder.is_dir() and any(folder.iterdir())

    def prepare_to_fetch(self, asked: AskedTrial) -> None:
        """Prepares the trial's folder before a checkpoint is fetched from an object store."""
        if asked.is_new:
            self._search.scheduler.hand_over(asked.trial_id)
        self._prepare_folder(asked, 0 if asked.is_new else 1, fills=True)

    def _is_given_up(self, asked: AskedTrial, n_before: int) -> bool:
        why = self._lost.why_over_before(asked.trial_id, asked.number, n_before)
        if why:
            self._say(f"Trial {asked.number}: {why}")
            self._search.fail(asked.trial_id)
            self.tell_of_members()
        return bool(why)

    def _prepare_folder(self, asked: AskedTrial, n_before: int, *, fills: bool = False) -> None:
        """Makes sure that all files in a trial's folder are its own, before any is read."""
        if self._folders is None:
            return
        begun_at = self._recorder.history.begun_at(asked.trial_id) if n_before else None
        fills = fills or (not n_before and self._search.is_copy(asked.trial_id))
        if note := self._folders.prepare(asked.number, begun_at, asked.params, fills=fills):
            self._say(note)

    def ending_of_trial(self, live: LiveAttempt, ending: Ending) -> Ending:
        """The ending of an attempt, given the trial's earlier attempts and remaining retries."""
        ending = self._completed_by_limit(live, ending)
        ending = self._paused_or_pruned(live, self._nothing_left.judge(live, ending))
        ending = self._with_best_report(live, ending)
        if ending.outcome is Outcome.LOST:
            ending = self._lost_or_failed(live.attempt, ending)
        self._nothing_left.note(live, ending)
        if note := self._unheard.note(live, ending):
            self._say(note)
        return ending

    def _completed_by_limit(self, live: LiveAttempt, ending: Ending) -> Ending:
        """Completes a program that the study file ends at a step or after a time."""
        is_at_last_step = (
            live.told is Action.COMPLETE
            and ending.outcome is Outcome.PRUNED
            and ending.cause is Cause.PRUNER
        )
        is_out_of_time = (
            self._terms.completes_on_timeout
            and ending.outcome is Outcome.TIMED_OUT
            and ending.cause is Cause.TIMEOUT
        )
        if not live.last_values or not (is_at_last_step or is_out_of_time):
            return ending
        return completed(live.last_values, self._search.objectives, ending.detail)

    def _with_best_report(self, live: LiveAttempt, ending: Ending) -> Ending:
        if not self._terms.best_report_counts or ending.outcome is not Outcome.COMPLETED:
            return ending
        said = live.finished
        best = self._search.last_reports.best(live.attempt.trial_id)
        if best is None or (said is not None and said.is_result):
            return ending
        return replace(ending, values={self._search.objectives[0]: best})

    def _lost_or_failed(self, attempt: Attempt, ending: Ending) -> Ending:
        why = self._lost.why_over_after(attempt.trial_id, attempt.trial_number, attempt.number)
        if not why:
            return ending
        self._say(f"Trial {attempt.trial_number}: {why}")
        detail = f"{ending.detail}\n{why}".strip()
        return replace(ending, outcome=Outcome.FAILED, detail=detail)

    def _paused_or_pruned(self, live: LiveAttempt, ending: Ending) -> Ending:
        """Turns a pruned ending into a paused one if the verdict was to pause."""
        if live.widens_to is not None and ending.cause is Cause.INTERRUPTED:
            return Ending(outcome=Outcome.PAUSED, detail=live.told_reason)
        was_told = live.told is Action.PAUSE or live.is_pausing
        is_pruned = ending.outcome is Outcome.PRUNED and ending.cause is Cause.PRUNER
        if not was_told or not is_pruned:
            return ending
        if self._files.has_checkpoint(live.attempt.trial_number):
            return replace(ending, outcome=Outcome.PAUSED)
        if self._search.stop_instead_of_pausing():
            self._say(
                f"Trial {live.attempt.trial_number} has saved no checkpoint, so that it cannot be "
                "paused and resumed: from now on weak trials are stopped instead. Call "
                "trial.save_checkpoint(state, step) at each step, or set mode: stop (pruner)."
            )
        return ending

    def settle(
        self,
        live: LiveAttempt,
        ending: Ending,
        *,
        is_ours: bool,
        may_retry: bool,
        is_stopping: bool,
    ) -> bool:
        """Records the trial's outcome in the study.

        Args:
            live: The attempt.
            ending: Its ending.
            is_ours: Whether the cause is outside the program.
            may_retry: Whether retries are allowed at all.
            is_stopping: Whether the study is stopping: a retry then stays queued for a later start.

        Returns:
            Whether the trial is retried now.
        """
        attempt = live.attempt
        if self._saving is not None:
            self._saving.settles(attempt)
        match ending.outcome:
            case Outcome.COMPLETED:
                self._search.complete(attempt.trial_id, ending.values)
                if note := self._search.steps.take_unreached_rung(attempt.trial_id):
                    self._say(note)
            case Outcome.PRUNED:
                self._search.prune(attempt.trial_id)
            case Outcome.PAUSED if live.widens_to is not None:
                pass  # It goes on as soon as its devices are free.
            case Outcome.PAUSED:
                self._search.pause(attempt.trial_id)
            case _ if ending.cause is Cause.INTERRUPTED:
                self._search.put_back(attempt.trial_id)
            case _:
                may_retry = may_retry and not self._lost.has_given_up(attempt.trial_id)
                if may_retry and self._retries.grant(attempt, ending, is_ours=is_ours):
                    return self._try_again(live, ending, is_stopping=is_stopping)
                if ending.is_of_the_configuration and ending.cause is not None:
                    self._search.mark_infeasible(attempt.trial_id, ending.cause.value)
                else:
                    self._search.fail(attempt.trial_id)
                self.tell_of_members()
        return False

    def tell_of_members(self) -> None:
        """Shows what happened to members of a population, and failures of the sampler."""
        for note in [*self._search.study.guard.take_notes(), *self._search.scheduler.take_notes()]:
            self._say(note)

    def _try_again(self, live: LiveAttempt, ending: Ending, *, is_stopping: bool) -> bool:
        if is_stopping:
            self._search.put_back(live.attempt.trial_id)
        else:
            self._leasing.put(self._again(live, ending), is_first=True)
        return not is_stopping

    def go_on_wider(self, live: LiveAttempt, *, is_stopping: bool) -> None:
        """Queues a trial whose attempt ended so that it continues on more devices."""
        if is_stopping:
            self._search.put_back(live.attempt.trial_id)
            return
        again = Candidate(
            asked=self._search.again(live.attempt.trial_id),
            attempt_number=live.attempt.number + 1,
            n_devices=live.widens_to,
        )
        self._leasing.put(again, is_first=True)

    def _again(self, live: LiveAttempt, ending: Ending) -> Candidate:
        has_run_out = ending.outcome is Outcome.OUT_OF_MEMORY
        return Candidate(
            asked=self._search.again(live.attempt.trial_id),
            attempt_number=live.attempt.number + 1,
            is_alone=self._retries.needs_room(live.attempt.trial_id),
            avoid=frozenset(each.id for each in live.grant.devices if has_run_out),
        )
