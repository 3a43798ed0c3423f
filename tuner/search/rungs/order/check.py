"""Checks whether the ranking of trials at a rung holds later in the training. No I/O.

Successive halving ends trials by their ranking at a rung. If this ranking is reversed
(regularization that pays late, a warm-up, a loss that falls first where the model overfits), the
trials that would end best are ended early, and every later trial is compared with the wrong
winners. If it is random, two thirds of what a model suggests are thrown away.

A reversal shows in the trials that passed a rung: their ranking there contradicts their ranking at
a later rung, or at their end. Those trials all looked good, so some that did not are trained on
as well: the witnesses (`tuner.search.rungs.order.witnesses`). Agreement is Kendall's rank
correlation (Biometrika 30, 1938). Trials are also compared halfway between two rungs: from the
highest rung to the end of a training is up to two thirds of it, and every trial that is ended in
this time is ended by a ranking that may be reversed.

A trial has relapsed if it is worse than at a rung that it passed, by a third of the trials there.
Training improves a trial, and one that a rung selected by mistake returns to the mean, so this is
evidence against the rung that costs nothing. It does not say which trials would have been better,
so it opens no rung: it makes more trials witnesses, and trains them to their end.

A rung is open, so that every trial passes it, if its ranking is contradicted later, or if it does
not agree with that of the next rung in effect. That it does not agree is no evidence among trials
that differ little at the rung, as those that it selected do (restriction of range, Thorndike,
Personnel Selection, 1949): there must be as much variance as of some trials drawn at random. The
rungs before it open with it: an earlier ranking is not assumed to know more of the end than a later
one. A rung closes once the trials that passed it while open, and were therefore not selected by it,
have the same ranking there and at their end. Few trials reach their end, so a rung also closes once
these trials have the same ranking there and at the next rung in effect, unless three of them or
more do not agree elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from tuner.search.rungs.order.agreement import END, RungTrust
from tuner.search.rungs.order.compared_rung import ComparedRung
from tuner.search.rungs.order.witnesses import Witnesses

_HALF = 0.5

#: Kendall's S in standard deviations. Of unrelated rankings, one in six is below the first, and one
#: in ten above the second. To open a rung wrongly costs some trainings; not to open it costs the
#: study.
_CONTRADICTS, _AGREES = -1.0, 1.28
#: Three whose ranking is reversed are found by chance in one of six; a fourth is often trained only
#: when a tenth of the time has passed.
_N_TO_OPEN = 3
#: Minimum number of trials to open a rung that is not contradicted, but does not agree, and of
#: trials drawn at random that vary as much; and to close a rung by the next one. Of six with a
#: Kendall correlation of 0.7, four of five times the ranking agrees significantly. To open one, as
#: many more are needed as there are first witnesses.
_N_TO_DOUBT = 6
#: Minimum number of trials to close a rung by their end.
_N_TO_CLOSE = 5
#: The limit to close a rung by the next one, in standard deviations: one of twenty unrelated
#: rankings is above it. This is asked with each trial that comes, so it is more than to agree.
_AGREES_WITH_NEXT = 1.64


class OrderCheck:
    """Opens and closes rungs by how well their orders agree with later ones."""

    def __init__(self) -> None:
        self._rungs: list[ComparedRung] = []
        self._newest = -1
        self._witnesses = Witnesses()
        #: By trial that trains: where it was compared with the rungs that it passed.
        self._compared_at: dict[int, set[float]] = {}
        #: Trials that relapsed, and where, since this was asked.
        self._relapses: list[tuple[int, float]] = []

    # -- what happens ------------------------------------------------------------------------

    def come(
        self,
        number: int,
        losses: Sequence[float],
        *,
        step_s: float | None = None,
        is_stored: bool = False,
    ) -> None:
        """Records that a trial has reached one more rung.

        Args:
            number: Its number.
            losses: Its losses at the rungs so far, the newest last; the smaller the better.
            step_s: Seconds per step so far, its start included; None if unknown.
            is_stored: Whether it reached it in another dispatcher, or before this start.
        """
        while len(self._rungs) < len(losses):
            self._rungs.append(ComparedRung())
        if len(losses) == 1:
            self._witnesses.begin(number, step_s)
        self._newest = max(self._newest, number)
        self._rungs[len(losses) - 1].reach(losses[-1])
        self._add(number, losses[:-1], len(losses) - 1, losses[-1], is_stored=is_stored)

    def pass_halfway(self, number: int, losses: Sequence[float], loss: float) -> bool:
        """A trial is halfway from its highest rung to the next.

        Args:
            number: Its number.
            losses: Its losses at the rungs, one or more.
            loss: Its loss now; only the first after each rung counts.

        Returns:
            Whether it counts.
        """
        halfway = len(losses) - 1 + _HALF
        if halfway in self._compared_at.get(number, ()):
            return False
        self._add(number, losses, halfway, loss, is_stored=False)
        self._compared_at.setdefault(number, set()).add(halfway)
        return True

    def end(
        self, number: int, losses: Sequence[float], last: float, *, is_stored: bool = False
    ) -> None:
        """A trial has completed.

        Args:
            number: Its number.
            losses: Its losses at the rungs.
            last: Its loss at its end.
            is_stored: Whether it completed in another dispatcher, or before this start.
        """
        self._add(number, losses, END, last, is_stored=is_stored)
        self._witnesses.complete(number)
        self._compared_at.pop(number, None)

    def leave(self, number: int) -> None:
        """A trial has paused, was pruned, or ended without a result.

        If it was a witness and was not compared later, another one is.
        """
        self._witnesses.leave(number)
        self._compared_at.pop(number, None)

    def _add(
        self, number: int, early: Sequence[float], later: float, last: float, *, is_stored: bool
    ) -> None:
        if not early or not math.isfinite(last):
            return
        passed = list(zip(self._rungs, early, strict=False))
        self._compare(number, passed, later, last, is_stored=is_stored)
        for rung, loss in passed:
            if number > rung.after and math.isfinite(loss):
                rung.add(later, (loss, last))

    def _compare(
        self,
        number: int,
        passed: Sequence[tuple[ComparedRung, float]],
        later: float,
        last: float,
        *,
        is_stored: bool,
    ) -> None:
        """Compares a trial with the rungs that it passed: whether it has relapsed."""
        judging = [(rung, loss) for rung, loss in passed if rung.can_judge]
        has_relapsed = False
        if not is_stored and any(rung.is_relapse(loss, last) for rung, loss in judging):
            has_relapsed = True
            self._relapses.append((number, later))
        # What is stored has no values between rungs, and its relapses are stored with it.
        places = {len(passed) - _HALF, later} if is_stored else {later}
        for place in sorted(places - self._compared_at.setdefault(number, set())):
            self._compared_at[number].add(place)
            known = has_relapsed if judging else None
            self._witnesses.compare(number, place, has_relapsed=known)

    def learn_relapses(self, number: int, places: Iterable[float]) -> None:
        """A trial has relapsed in another dispatcher, or before this start.

        Args:
            number: Its number; of each of its places this is called once, before its rungs.
            places: Where: rungs, k + 0.5 for halfway from rung k to the next, or END.
        """
        for place in places:
            self._compared_at.setdefault(number, set()).add(place)
            self._witnesses.compare(number, place, has_relapsed=True)

    def take_relapses(self) -> list[tuple[int, float]]:
        """Returns and clears the trials that have relapsed, and where."""
        relapses, self._relapses = self._relapses, []
        return relapses

    # -- witnesses ---------------------------------------------------------------------------

    def take_witness(self, number: int, rung: int, *, n_running: int = 1) -> bool:
        """Whether a trial that a rung would end is trained on to check the order.

        Args:
            number: Its number.
            rung: The rung.
            n_running: Trials that train at the moment, on all machines.
        """
        is_contradicted = any(
            not each.is_open and each.agreement(END).z < 0 for each in self._rungs
        )
        return self._witnesses.take(
            number, rung, n_running=n_running, is_contradicted=is_contradicted
        )

    def add_witness(self, number: int, rung: int) -> None:
        """A trial that a rung would have ended is trained on."""
        self._witnesses.add(number, rung)

    # -- rungs -------------------------------------------------------------------------------

    def judge(self) -> bool:
        """Opens and closes rungs, from the last on; returns whether one has changed."""
        return any([self._judge(index) for index in reversed(range(len(self._rungs)))])

    def _judge(self, index: int) -> bool:
        rung = self._rungs[index]
        reason = self._why_close(index) if rung.is_open else self._why_open(index)
        if reason is None:
            return False
        self._turn(rung, reason)
        for earlier in self._rungs[:index] if rung.is_open else ():
            if not earlier.is_open:
                self._turn(earlier, self._worst(earlier))
        return True

    def _why_open(self, index: int) -> float | None:
        """What contradicts a rung, or else the next rung in effect, if it does not agree."""
        rung = self._rungs[index]
        worst = self._worst(rung, n_least=_N_TO_OPEN)
        if rung.agreement(worst).z < _CONTRADICTS:
            return worst
        following = self._next_in_effect(index)
        agreement = rung.agreement(following)
        # Where many train at the same time, more evidence arrives soon, and costs no time.
        n_least = _N_TO_DOUBT + self._witnesses.n_first
        is_doubtful = agreement.n_trials >= n_least and agreement.z <= _AGREES
        return following if is_doubtful and rung.n_drawn(following) >= n_least else None

    def _why_close(self, index: int) -> float | None:
        """What agrees least with a rung, if that agrees well enough, too; or else the next rung."""
        rung = self._rungs[index]
        at_the_end = rung.agreement(END)
        worst = self._worst(rung, n_least=_N_TO_CLOSE)
        agrees = at_the_end.z > _AGREES and at_the_end.n_trials >= _N_TO_CLOSE
        if agrees and rung.agreement(worst).z > 0:
            return worst
        following = self._next_in_effect(index)
        with_next = rung.agreement(following)
        worst = self._worst(rung, n_least=_N_TO_OPEN)
        agrees = with_next.z > _AGREES_WITH_NEXT and with_next.n_trials >= _N_TO_DOUBT
        return following if agrees and rung.agreement(worst).z > 0 else None

    def _worst(self, rung: ComparedRung, *, n_least: int = 0) -> float:
        """What agrees least with a rung, of so many trials; the end, if that is unknown."""
        known = [each for each in rung.later if rung.agreement(each).n_trials >= n_least]
        return min(self._in_effect(known), key=lambda each: rung.agreement(each).z, default=END)

    def _next_in_effect(self, index: int) -> float:
        """The next rung that is not open; the end, if there is none."""
        return next(self._in_effect([*range(index + 1, len(self._rungs)), END]))

    def _in_effect(self, later: Iterable[float]) -> Iterator[float]:
        # What an open rung says is not relied on, whether it agrees or contradicts.
        return (each for each in later if each not in self.open_rungs)

    def _turn(self, rung: ComparedRung, reason: float) -> None:
        is_open, agreement = not rung.is_open, rung.agreement(reason)
        by = RungTrust(is_open=is_open, after=self._newest, later=reason, agreement=agreement)
        rung.turn(is_open=is_open, after=self._newest, by=by)

    @property
    def open_rungs(self) -> frozenset[int]:
        """Rungs that every trial passes."""
        return frozenset(index for index, rung in enumerate(self._rungs) if rung.is_open)

    def may_end_again(self, number: int, rung: int, *, n_running: int) -> bool:
        """Whether a rung may end a trial that it has let continue, a witness included.

        It may once all that is known says that the rankings until the rung hold, as much as would
        contradict them: those of three trials or more at each later place. No rung may be open, and
        no third of the trials that passed may have relapsed.

        Args:
            number: Its number.
            rung: The rung.
            n_running: Trials that train at the moment, on all machines.
        """
        if self.open_rungs or self._witnesses.have_relapsed:
            return False
        if self._witnesses.is_to_end(number, n_running=n_running):
            return False
        known = [
            agreement.z
            for each in self._rungs[: rung + 1]
            for later in each.later
            if (agreement := each.agreement(later)).n_trials >= _N_TO_OPEN
        ]
        return bool(known) and min(known) > -_CONTRADICTS

    def trust(self) -> list[RungTrust]:
        """Reliability of each rung, from the first on."""
        return [self._trust(rung) for rung in self._rungs]

    def _trust(self, rung: ComparedRung) -> RungTrust:
        newest = self._newest_trust(rung)
        return rung.turned_by if rung.turned_by and not newest.agreement.n_trials else newest

    def _newest_trust(self, rung: ComparedRung) -> RungTrust:
        # Where nothing speaks against it: the end, as far as it is known.
        later = self._worst(rung)
        agreement = rung.agreement(later)
        return RungTrust(is_open=rung.is_open, after=rung.after, later=later, agreement=agreement)

    def restore(self, states: Sequence[RungTrust]) -> None:
        """Restores the state of another check, rung by rung."""
        for index, found in enumerate(states):
            while len(self._rungs) <= index:
                self._rungs.append(ComparedRung())
            rung = self._rungs[index]
            if (rung.is_open, rung.after) != (found.is_open, found.after):
                rung.turn(is_open=found.is_open, after=found.after, by=found)
