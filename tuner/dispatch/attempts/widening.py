"""Continues trials on more devices when no trials are queued (`widen`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tuner.checkpoints.layout import newest_whole
from tuner.checkpoints.paths import StudyFiles
from tuner.dispatch.attempts.endings.retries import FREE_CAUSES
from tuner.dispatch.attempts.live_attempt import LiveAttempt
from tuner.dispatch.attempts.stopping import AttemptStop
from tuner.dispatch.supply.leasing import Leasing
from tuner.domain.attempt import AttemptState, Ending
from tuner.domain.budget import Budget, Spent, TrialUse
from tuner.domain.messages import Action
from tuner.host.clock import Instant
from tuner.search.study import StudySearch
from tuner.store.records.recorder import Recorder

WIDENED = "widened"
"""Name of the event."""

_LOOK_EVERY_S = 1.0
#: Assumed scaling before any trial was widened: twice the devices are 1.74 times as fast.
_SCALING = 0.8
#: Below this scaling (twice the devices are 1.11 times as fast), widening stops.
_LEAST_SCALING = 0.15
#: The estimated gain must exceed the restart cost by this factor: both are estimates.
_LEAST_GAIN = 2.0
#: An attempt must have run this many times its start time before it is widened.
_LEAST_RUN = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """Estimated remaining time of a trial on its current devices."""

    #: Seconds until its end.
    left_s: float
    #: Seconds to restart it and to repeat the steps since its last checkpoint.
    restart_s: float

    def gain_s(self, ratio: float, scaling: float) -> float:
        """Seconds saved with `ratio` times the devices, without the restart cost."""
        return self.left_s * (1.0 - math.pow(ratio, -scaling))

    def pays(self, ratio: float, scaling: float) -> bool:
        """Whether the gain is worth the restart."""
        return self.gain_s(ratio, scaling) >= _LEAST_GAIN * self.restart_s

    def wide_s(self, ratio: float, scaling: float) -> float:
        """Seconds until its end if it were widened now."""
        return self.restart_s + self.left_s - self.gain_s(ratio, scaling)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Before:
    """State of an attempt that was ended to be widened."""

    n_devices: int
    pace_s: float
    first_step: int
    last_step: int


class Widener:
    """Ends attempts so that their trials continue on more devices.

    The gain is estimated from the trial's time per step, from the last steps of the study's
    completed trials, and from the attempt's time to its first report. The pace of a widened trial
    updates the estimated scaling. If widening does not speed it up, or the trial cannot start or
    restarts from its first step, widening stops.

    Args:
        search: Knows the number of steps of trials.
        leasing: Knows which devices are idle.
        stopping: Ends attempts.
        recorder: Records events.
        files: Paths of checkpoints.
        say: Shows a message to the user.
    """

    def __init__(
        self,
        *,
        search: StudySearch,
        leasing: Leasing,
        stopping: AttemptStop,
        recorder: Recorder,
        files: StudyFiles,
        say: Callable[[str], None],
    ) -> None:
        self._search = search
        self._leasing = leasing
        self._stopping = stopping
        self._recorder = recorder
        self._files = files
        self._say = say
        self._looked_at_s = -math.inf
        self._is_off = False
        self._has_told_of_checkpoints = False
        self._scaling = _SCALING
        #: By trial; entries are removed once evaluated.
        self._before: dict[int, _Before] = {}

    def is_due(self, now: Instant) -> bool:
        """Whether the next check is due."""
        return not self._is_off and now.monotonic_s - self._looked_at_s >= _LOOK_EVERY_S

    def poll(
        self, now: Instant, lives: Collection[LiveAttempt], budget: Budget, spent: Spent
    ) -> None:
        """Ends attempts to widen their trials when no trials are queued for the idle devices.

        Args:
            now: The current time.
            lives: All attempts that hold devices.
            budget: The study's budget.
            spent: What is spent of it.
        """
        self._looked_at_s = now.monotonic_s
        self._learn(lives)
        courses = {} if self._is_off else self._courses(now, lives)
        promised = sum(live.widens_to - _n_devices(live) for live in lives if live.widens_to)
        for live, n_devices in self._share(courses, promised):
            course, ratio = courses[live.attempt.trial_id][1], n_devices / _n_devices(live)
            time_s = course.wide_s(ratio, self._scaling)
            use = TrialUse(time_s=time_s, device_s=time_s * n_devices)
            if course.pays(ratio, self._scaling) and not budget.too_little(spent, use):
                self._widen(now, live, n_devices)

    def has_spoilt(self, live: LiveAttempt, ending: Ending) -> bool:
        """Whether a trial failed because it was widened: this costs no retry."""
        is_wider = live.grant.candidate.n_devices is not None
        is_its_own = ending.outcome.is_failure and ending.cause not in FREE_CAUSES
        if not (is_wider and is_its_own and live.last_step is None):
            return False
        self._before.pop(live.attempt.trial_id, None)
        self._turn_off(
            f"Trial {live.attempt.trial_number} could not continue on {_n_devices(live)} devices; "
            "it continues as before"
        )
        return True

    # -- inside ------------------------------------------------------------------------------

    def _courses(
        self, now: Instant, lives: Collection[LiveAttempt]
    ) -> Mapping[int, tuple[LiveAttempt, Course]]:
        """Attempts that may be widened, with their estimates, by trial."""
        n_steps = self._search.n_steps
        if n_steps is None:
            return {}
        found: dict[int, tuple[LiveAttempt, Course]] = {}
        for live in lives:
            course = self._course(now, live, n_steps) if _is_at_work(live) else None
            if course is not None:
                found[live.attempt.trial_id] = live, course
        return found

    def _course(self, now: Instant, live: LiveAttempt, n_steps: float) -> Course | None:
        """The estimate; None if it is too early or there is no checkpoint to continue from."""
        pace_s = live.pace_s
        start_s = live.first_heard_at_s - live.leased_at_s
        is_rested = now.monotonic_s - live.leased_at_s >= _LEAST_RUN * start_s
        if pace_s is None or live.last_step is None or not is_rested:
            return None
        saved = newest_whole(self._files.checkpoints(live.attempt.trial_number))
        if saved is None:
            self._say_checkpoints(live)
            return None
        try:
            unsaved_s = max(0.0, now.utc.timestamp() - saved.stat().st_mtime)
        except FileNotFoundError:
            return None  # It has just been replaced by a newer one.
        left_s = pace_s * max(0.0, n_steps - live.last_step)
        return Course(left_s=left_s, restart_s=start_s + unsaved_s)

    def _share(
        self, courses: Mapping[int, tuple[LiveAttempt, Course]], promised: int
    ) -> Sequence[tuple[LiveAttempt, int]]:
        """Assigns idle devices that are not reserved, first to the attempts with most time left."""
        if not courses:
            return []
        anyone = next(iter(courses.values()))[0].grant.candidate
        n_idle = max(0, self._leasing.n_idle_for(anyone) - promised)
        most_left_first = sorted(courses.values(), key=lambda each: -each[1].left_s)
        given = {
            live.attempt.trial_id: _n_devices(live)
            for live, course in most_left_first
            if course.pays(1 + n_idle / _n_devices(live), self._scaling)
        }
        has_grown = True
        while has_grown:
            has_grown = False
            for trial_id, n_devices in given.items():
                more = self._leasing.wider(n_devices)
                if more is not None and more - n_devices <= n_idle:
                    n_idle -= more - n_devices
                    given[trial_id] = more
                    has_grown = True
        lives = {trial_id: live for trial_id, (live, _) in courses.items()}
        return [(lives[id_], n) for id_, n in given.items() if n > _n_devices(lives[id_])]

    def _widen(self, now: Instant, live: LiveAttempt, n_devices: int) -> None:
        assert live.pace_s is not None, "it has a course"
        assert live.first_step is not None, "it has reported"
        assert live.last_step is not None, "it has reported"
        self._before[live.attempt.trial_id] = _Before(
            n_devices=_n_devices(live),
            pace_s=live.pace_s,
            first_step=live.first_step,
            last_step=live.last_step,
        )
        reason = (
            f"No other trial waits: it continues on {n_devices} devices, not {_n_devices(live)}."
        )
        detail = f"trial {live.attempt.trial_number}: {reason}"
        self._recorder.note(WIDENED, at=now.utc, detail=detail)
        self._stopping.request_widening(live, now, n_devices, reason)

    def _learn(self, lives: Collection[LiveAttempt]) -> None:
        """Evaluates the trials that were widened."""
        for live in lives:
            before = self._before.get(live.attempt.trial_id)
            is_wider = live.grant.candidate.n_devices is not None
            if before is None or not is_wider or live.first_step is None:
                continue
            number, n_devices = live.attempt.trial_number, _n_devices(live)
            if live.first_step <= before.first_step < before.last_step:
                del self._before[live.attempt.trial_id]
                self._turn_off(
                    f"Trial {number} was widened after step {before.last_step} and reports step "
                    f"{live.first_step} again: its program does not continue from its checkpoint"
                )
            elif live.pace_s is not None and n_devices > before.n_devices:
                del self._before[live.attempt.trial_id]
                self._note_pace(number, before, n_devices, live.pace_s)

    def _note_pace(self, number: int, before: _Before, n_devices: int, pace_s: float) -> None:
        speedup = before.pace_s / pace_s if pace_s > 0 else math.inf
        ratio = n_devices / before.n_devices
        # Twice as fast on twice as many is what devices can do; more was chance.
        self._scaling = min(1.0, math.log(max(speedup, 1e-9)) / math.log(ratio))
        if self._scaling < _LEAST_SCALING:
            self._turn_off(
                f"Trial {number} takes {pace_s:.3g} s for a step on {n_devices} devices, and took "
                f"{before.pace_s:.3g} s on {before.n_devices}"
            )

    def _turn_off(self, why: str) -> None:
        if not self._is_off:
            self._is_off = True
            self._say(f"{why}. No other trial is widened.")

    def _say_checkpoints(self, live: LiveAttempt) -> None:
        if not self._has_told_of_checkpoints:
            self._has_told_of_checkpoints = True
            self._say(
                f"Trial {live.attempt.trial_number} has saved no checkpoint, so that it is not "
                "widened. Call trial.save_checkpoint(state, step), or remove widen."
            )


def _n_devices(live: LiveAttempt) -> int:
    return len(live.grant.devices)


def _is_at_work(live: LiveAttempt) -> bool:
    is_untold = live.told is Action.CONTINUE and live.stop_cause is None
    return live.attempt.state is AttemptState.RUNNING and is_untold and live.finished is None
