"""Messages from workers, and the replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from optuna.distributions import json_to_distribution

from tuner.dispatch.attempts.live_attempt import LiveAttempt, Step
from tuner.dispatch.attempts.transitions import move
from tuner.dispatch.supply.leasing import Leasing
from tuner.dispatch.terms import Terms
from tuner.dispatch.upkeep.database_outage import Outage
from tuner.domain import messages
from tuner.domain.attempt import AttemptState
from tuner.domain.messages import Action
from tuner.host.clock import Instant
from tuner.launch.failure_diagnosis import readable
from tuner.launch.inbox import SourceId
from tuner.launch.plan import TrialPlan
from tuner.launch.protocols import Channel
from tuner.search.study import StudySearch
from tuner.search_spaces.compare import difference_in_code
from tuner.store.records.recorder import Recorder

_COUNTS_ANEW = (
    ": its program does not continue from its checkpoint, or counts from the beginning. What it "
    "reports until its end is not taken"
)


class Talk:
    """Processes messages from workers and replies with verdicts.

    Args:
        search: The study, which judges reports.
        recorder: Writes metrics and states.
        channel: The channel to the workers.
        leasing: Is notified when a trial starts working.
        plan: Settings that all attempts share.
        terms: Time limits.
        outage: Used when a pruner cannot read from the database.
        stop: Stops the start of trials, with a reason.
        say: Shows a message to the user.
    """

    def __init__(
        self,
        *,
        search: StudySearch,
        recorder: Recorder,
        channel: Channel,
        leasing: Leasing,
        plan: TrialPlan,
        terms: Terms,
        outage: Outage,
        stop: Callable[[str], None],
        say: Callable[[str], None],
    ) -> None:
        self._search = search
        self._recorder = recorder
        self._channel = channel
        self._leasing = leasing
        self._plan = plan
        self._terms = terms
        self._outage = outage
        self._stop = stop
        self._say = say
        self._remarked: set[messages.RemarkTopic] = set()
        #: Parameters whose ranges in code were compared with the study file's.
        self._compared: set[str] = set()
        #: Trials that sent names which cannot be stored.
        self._told_of_names: set[int] = set()

    def handle(
        self, now: Instant, live: LiveAttempt, source: SourceId, message: messages.FromWorker
    ) -> None:
        """Processes one message.

        Args:
            now: The current time.
            live: The attempt that sent it.
            source: The connection that it arrived on.
            message: The message.
        """
        match message:
            case messages.Hello():
                self._on_hello(now, live, source, message)
            case messages.Report():
                self._on_report(now, live, source, message)
            case messages.Decided():
                live.heeds = message.action
                if message.count:
                    # From rank 0, for the others.
                    live.decided = message
                    self._channel.broadcast(live.attempt.id, message)
            case messages.Suggest():
                self._channel.send(source, self._suggested(live, message))
            case messages.RangeInCode():
                self._compare(live, message)
            case messages.AskStudy():
                self._channel.send(source, self._study_place(now, live))
            case messages.StopStudy():
                self._stop(f"trial {live.attempt.trial_number} called study.stop()")
            case messages.StatesDamaged():
                self._on_damage(live, message)
            case messages.Remark():
                self._pass_on(live, message)
            case messages.SetAttribute() if self._is_storable(live, message.key):
                self._search.set_attribute(live.attempt.trial_id, message.key, message.value)
            case messages.SetConstraint() if self._is_storable(live, message.key):
                self._search.set_constraint(live.attempt.trial_id, message.key, message.value)
            case messages.Finished():
                self._on_finished(now, live, message)
            case messages.TerminationRequested():
                pass  # `Stopping.request_end` handles it.
            case messages.SetAttribute() | messages.SetConstraint():
                pass  # People were told.
            case _:
                assert_never(message)

    def _on_hello(
        self, now: Instant, live: LiveAttempt, source: SourceId, hello: messages.Hello
    ) -> None:
        if not hello.is_worker:
            # A script below the worker; the worker's own came with its launch.
            devices = live.grant.devices
            self._channel.send(source, self._plan.assign(live.attempt, devices, live.params))
        if live.told is Action.STOP:
            self._channel.send(source, verdict_on(live, step=-1))
        if hello.is_worker and hello.rank < len(live.ranks):
            live.ranks[hello.rank].source = source
            live.ranks[hello.rank].began_at = now.utc_at(hello.since_boot_s)
        if hello.rank and live.decided is not None:
            self._channel.send(source, live.decided)
        is_complete = all(rank.source is not None for rank in live.ranks)
        if is_complete and live.attempt.state is AttemptState.LEASED:
            move(self._recorder, live, AttemptState.RUNNING, now, at=live.began_at)
            live.deadline_s = None
            if self._terms.timeout_s is not None:
                live.wait_for(Step.TIME_OUT, now.monotonic_s + self._terms.timeout_s)

    def _on_report(
        self, now: Instant, live: LiveAttempt, source: SourceId, report: messages.Report
    ) -> None:
        trial_id = live.attempt.trial_id
        if live.last_step is None:
            self._check_count(live, report.step)
            live.first_step, live.first_heard_at_s = report.step, now.monotonic_s
        live.last_step, live.last_values = report.step, report.values
        live.heard_at_s = now.monotonic_s
        self._leasing.reported(live.grant, now.monotonic_s)
        if live.is_miscounting:
            self._answer(live, source, report.step)
            return
        # A pruner may have to read what was reported before this start.
        with self._outage.watch(now):
            # Also for a trial that is being stopped: it may have saved, and continue from there.
            held_s = now.monotonic_s - live.leased_at_s
            decision = self._search.report(trial_id, report.step, report.values, held_s=held_s)
            if self._terms.max_steps is not None and report.step >= self._terms.max_steps:
                # The pruner has its value; nothing is left to be saved by an early end.
                live.tell(Action.COMPLETE, f"trial.max_steps is {self._terms.max_steps}.")
            else:
                live.tell(decision.action, decision.reason)
        for note in self._search.scheduler.take_notes():
            self._say(note)
        self._answer(live, source, report.step)
        extra = report.metrics if len(report.values) == 1 else {**report.values, **report.metrics}
        stored = {
            name: value
            for name, value in extra.items()
            if self._is_storable(live, name, messages.MAX_METRIC_NAME)
        }
        if stored:
            self._recorder.metrics(live.attempt.id, report.step, stored)

    def _pass_on(self, live: LiveAttempt, remark: messages.Remark) -> None:
        """Shows a remark once, for the first trial: all trials run the same program."""
        is_order = remark.topic is messages.RemarkTopic.REPEATED_STEPS
        if is_order and not self._search.scheduler.has_ordered_steps:
            return
        if remark.topic not in self._remarked:
            self._remarked.add(remark.topic)
            self._say(f"Trial {live.attempt.trial_number}: {readable(remark.text)}")

    def _compare(self, live: LiveAttempt, found: messages.RangeInCode) -> None:
        """Reports once per parameter that the study file overrides the range in code."""
        if found.name in self._compared:
            return
        self._compared.add(found.name)
        try:
            distribution = json_to_distribution(found.distribution)
        except (ValueError, TypeError, KeyError):
            return  # Not one of Optuna's.
        ranges = difference_in_code(self._plan.space, found.name, distribution)
        if ranges is not None:
            declared, in_code = ranges
            self._say(
                f"Parameter {readable(found.name)}: the study file has {declared}, the code of "
                f"trial {live.attempt.trial_number} has {in_code}. The study file is used; remove "
                "the parameter from search_space to use the code."
            )

    def _is_storable(self, live: LiveAttempt, name: str, limit: int = messages.MAX_KEY) -> bool:
        """Whether a name from a program can be stored; shows one message per trial if not.

        The tuner's own client refuses such names; other programs must not end the study with them.
        """
        problem = messages.name_problem(name, limit)
        if problem and live.attempt.trial_id not in self._told_of_names:
            self._told_of_names.add(live.attempt.trial_id)
            self._say(f"Trial {live.attempt.trial_number} sent what is left out: {problem}.")
        return not problem

    def _check_count(self, live: LiveAttempt, step: int) -> None:
        """Checks at an attempt's first report that its steps continue where they should."""
        trial_id = live.attempt.trial_id
        if self._search.scheduler.restarts_steps(trial_id, step):
            live.is_miscounting = True
            self._warn_about_copy(live, step)
        elif live.attempt.number > 1:
            live.is_miscounting = self._search.steps.counts_anew(trial_id, step)
            if live.is_miscounting:
                self._warn_about_count(live, step)
            else:
                self._search.forget_curve_from(trial_id, step)

    def _warn_about_copy(self, live: LiveAttempt, step: int) -> None:
        if self._search.stop_instead_of_pausing():
            self._say(
                f"Trial {live.attempt.trial_number} is a copy and reports step {step}, which is "
                f"before that of the checkpoint that it has from its parent{_COUNTS_ANEW}, and "
                "from now on no member is replaced. Let it count on from the state of "
                "trial.load_checkpoint()."
            )

    def _warn_about_count(self, live: LiveAttempt, step: int) -> None:
        if not self._search.stop_instead_of_pausing():
            return
        follows, way_out = (
            "weak trials are stopped instead of paused",
            ", or set mode: stop (pruner)",
        )
        if self._search.scheduler.has_population:
            follows, way_out = "no trial is replaced or paused", ""
        self._say(
            f"Trial {live.attempt.trial_number} was resumed and reports step {step} again"
            f"{_COUNTS_ANEW}, and from now on {follows}. Let it count on from the state of "
            f"trial.load_checkpoint(){way_out}."
        )

    def _answer(self, live: LiveAttempt, source: SourceId, step: int) -> None:
        """Sends the verdict to the reporting rank; commands of other ranks end with rank 0's."""
        verdict = verdict_on(live, step)
        self._channel.send(source, verdict)
        if verdict.action is not Action.CONTINUE and source == live.ranks[0].source:
            for rank in live.ranks[1:]:
                if rank.source is not None:
                    self._channel.send(rank.source, verdict)

    def _on_damage(self, live: LiveAttempt, damaged: messages.StatesDamaged) -> None:
        self._search.resumes_from(live.attempt.trial_id, damaged.resumed_from)
        follows = "it starts from the beginning"
        if damaged.resumed_from is not None:
            follows = f"it continues from step {damaged.resumed_from}"
        one = "checkpoint is" if len(damaged.paths) == 1 else "checkpoints are"
        self._say(
            f"Trial {live.attempt.trial_number}: {follows}, because its newest {one} damaged: "
            f"{', '.join(damaged.paths)}"
        )

    def _on_finished(self, now: Instant, live: LiveAttempt, finished: messages.Finished) -> None:
        if finished.rank >= len(live.ranks):
            return
        rank = live.ranks[finished.rank]
        rank.finished = finished
        rank.finished_at = now.utc_at(finished.since_boot_s)
        if not live.is_signalled:
            live.note_end(rank)
            live.expect_exits(now.monotonic_s, self._terms.stop_grace_s)

    def _study_place(self, now: Instant, live: LiveAttempt) -> messages.StudyPlace:
        # What earlier attempts of the trial have set can be read there.
        with self._outage.watch(now):
            self._recorder.commit()
        return messages.StudyPlace(
            attempt_id=live.attempt.id, study=self._plan.study, storage=self._plan.storage
        )

    def _suggested(self, live: LiveAttempt, asked: messages.Suggest) -> messages.Suggested:
        if problem := messages.name_problem(asked.name, messages.MAX_KEY):
            return messages.Suggested(attempt_id=live.attempt.id, name=asked.name, error=problem)
        try:
            value = self._search.suggest(live.attempt.trial_id, asked.name, asked.distribution)
        except (ValueError, KeyError, TypeError) as error:
            return messages.Suggested(attempt_id=live.attempt.id, name=asked.name, error=str(error))
        return messages.Suggested(attempt_id=live.attempt.id, name=asked.name, value=value)


def verdict_on(live: LiveAttempt, step: int) -> messages.Verdict:
    """The verdict for an attempt at a step; step -1 means at once."""
    return messages.Verdict(
        attempt_id=live.attempt.id, step=step, action=live.told, reason=live.told_reason
    )
