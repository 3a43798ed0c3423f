"""Trainings in slices: after each slice, the trial with the highest worth trains the next.

The worth of a slice is the expected improvement of the best value per second of training, by a
curve model (expected improvement per second; Snoek, Larochelle and Adams, 2012, arXiv:1206.2944),
up to the end of that slice or of any later one, whichever is highest. A paused trial pays for its
start, a running one does not. It is compared with the paused trials and with a new trial of a
random configuration, so that a new trial starts whenever this beats the best paused one. If trials
cannot pause, an unfinished training is lost: then only final values count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from tuner.search.rungs.curve_model import Array, CurveModel, Place
from tuner.search.rungs.step_time import Pace
from tuner.search.rungs.table import RungTable, Standing
from tuner.search.samplers.curve_gp.encoding import Encoding
from tuner.search.samplers.curve_gp.feasibility import is_infeasible
from tuner.search.samplers.curve_gp.inferred_space import CommonSpace
from tuner.search.samplers.curve_gp.points import Steps

#: Number of known trials below which no trial is judged.
N_LEAST = 3
#: Maximum number of points in the model; its parameters are fitted to fewer.
_MAX_POINTS = 240
_MAX_FITTED = 60
#: Up to this many points, the parameters are fitted each time; beyond, at each growth by this
#: factor.
_N_QUICK = 20
_REFIT_AT = 1.2
#: Candidates per rung: only the best paused trials of a rung can be worth most.
_N_BEST = 4
_NOT_BEGUN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceStanding(Standing):
    """A trial's standing at the end of a slice."""

    #: Expected improvement per second, of this trial and of the best alternative.
    worth: float = math.nan
    other_worth: float = math.nan
    #: Number of the alternative trial; None for a new one.
    other: int | None = None
    #: Unit of time; steps until a step was timed.
    unit: str = "second"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A trial that could train next."""

    number: int
    row: Array
    #: The last that it has trained.
    step: int
    start_s: float
    of_step_s: float

    def seconds_to(self, step: int) -> float:
        return self.start_s + self.of_step_s * (step - self.step)


class SliceTable(RungTable):
    """Slices trained per trial, and paused trials; its rungs are the ends of slices.

    Args:
        first: The last step of the first slice, from 1.
        factor: Ratio of a slice's last step to that of the slice before.
        seed: Seed of the drawn configurations.
    """

    def __init__(self, *, first: int, factor: int, seed: int) -> None:
        super().__init__(first=first, factor=factor)
        self._seed = seed
        #: Returns a trial by its number.
        self.trial_of: Callable[[int], FrozenTrial] | None = None
        self.pace = Pace()
        self._model = CurveModel()
        self._encoding: Encoding | None = None
        #: Last step and loss of completed trials.
        self.ends: dict[int, tuple[int, float]] = {}
        self._longest = 0
        self._best = math.inf
        self._latest = 0
        #: Observations available to the model, and those it was fitted to and has learned.
        self._n_known = self._n_fitted = 0
        self._learned_at: tuple[int, int] | None = None
        self._found: tuple[float, int] | None = None
        self._is_looked_up = False

    # -- what happens ------------------------------------------------------------------------

    def come(self, number: int, rung: int, loss: float) -> list[int]:
        new = super().come(number, rung, loss)
        if new:
            self._best, self._latest = min(self._best, loss), number
            self._n_known += len(new)
            self._is_looked_up = False
        return new

    def completes(self, number: int, step: int, loss: float) -> None:
        """Records a completed trial. Safe to call twice."""
        if number not in self.ends and math.isfinite(loss):
            self.ends[number] = step, loss
            self._best, self._longest = min(self._best, loss), max(self._longest, step)
            self._n_known += 1
            self._is_looked_up = False

    def pause(self, number: int) -> None:
        super().pause(number)
        self._is_looked_up = False

    def unpause(self, number: int) -> None:
        super().unpause(number)
        self._is_looked_up = False

    # -- who continues -------------------------------------------------------------------------

    def standing(self, number: int, rung: int) -> SliceStanding:
        entry = (self._losses.at(number, rung), number)
        came = self._rungs[rung].came
        can_wait = not self.is_final
        mine = best = math.nan
        other = None
        if self._is_enough:
            (mine,) = self._worths([self._candidate(number, rung, start_s=0.0)])
            best, other = self._worth_of_new(), None
            waiting = self._best_paused() if can_wait else None
            if waiting is not None and waiting[0] > best:
                best, other = waiting
        return SliceStanding(
            rung=rung,
            loss=entry[0],
            place=came.place_of(entry),
            n_came=len(came),
            bar=math.nan,
            goes_on=mine > best if self._is_enough else not can_wait,
            worth=mine,
            other_worth=best,
            other=other,
            unit=self.pace.unit,
        )

    def promotable(self) -> Iterator[int]:
        while self._is_enough and (found := self._best_paused()) is not None:
            if not found[0] > self._worth_of_new():
                return
            yield found[1]

    def leader(self) -> int | None:
        found = self._best_paused() if self._is_enough else None
        return super().leader() if found is None else found[1]

    # -- inside ------------------------------------------------------------------------------

    @property
    def _is_enough(self) -> bool:
        return len(self._losses) >= N_LEAST and math.isfinite(self._best)

    def _best_paused(self) -> tuple[float, int] | None:
        """Worth and number of the paused trial that is worth most."""
        if not self._is_looked_up:
            start_s = self.pace.of_start
            candidates = [
                self._candidate(number, rung, start_s=start_s)
                for rung, at in enumerate(self._rungs)
                for _, number in at.paused[:_N_BEST]
            ]
            found = zip(self._worths(candidates), candidates, strict=True)
            in_order = sorted((-worth, each.number) for worth, each in found)
            self._found = (-in_order[0][0], in_order[0][1]) if in_order else None
            self._is_looked_up = True
        return self._found

    def _worth_of_new(self) -> float:
        """Worth of a random configuration, which stays the same until new results arrive."""
        self._learn()
        rng = np.random.default_rng([self._seed, self._n_known])
        row = np.zeros(0) if self._encoding is None else self._encoding.draw(rng)
        start_s, of_step = self.pace.of_start, self.pace.of_step(None)
        new = _Candidate(number=_NOT_BEGUN, row=row, step=0, start_s=start_s, of_step_s=of_step)
        return self._worths([new])[0]

    def _candidate(self, number: int, rung: int, *, start_s: float) -> _Candidate:
        self._learn()
        return _Candidate(
            number=number,
            row=self._row(self._trial(number)),
            step=self.step_of(rung),
            start_s=start_s,
            of_step_s=self.pace.of_step(number),
        )

    def _worths(self, candidates: Sequence[_Candidate]) -> list[float]:
        """Worths of candidates, in one evaluation of the model."""
        ends = [self._ends_after(each.step) for each in candidates]
        places = [
            Place(number=each.number, row=each.row, step=end)
            for each, its in zip(candidates, ends, strict=True)
            for end in its
        ]
        gains = iter(self._model.improvement(places) if places else ())
        worths = []
        for each, its in zip(candidates, ends, strict=True):
            rates = [next(gains) / max(1e-9, each.seconds_to(end)) for end in its]
            # Where nothing is left to it but to end, it does.
            worths.append(float(max(rates)) if rates else math.inf)
        return worths

    def _ends_after(self, step: int) -> list[int]:
        """Last steps of the following slices, up to the end of a training."""
        last = self._last_step
        rung, ends = self.rung_at(step) + 1, []
        while self.step_of(rung) < last and not self.is_final:
            ends.append(self.step_of(rung))
            rung += 1
        return [*ends, last] if step < last else []

    @property
    def _last_step(self) -> int:
        """Last step of a training; the next slice's while no length is known."""
        return max(self.length or 0, self._longest) or self.step_of(len(self._rungs))

    # -- what the model knows ----------------------------------------------------------------

    def _learn(self) -> None:
        """Updates the model with new results."""
        if self._learned_at == (self._n_known, self.is_final):
            return
        best = {number for rung in self._rungs for _, number in rung.paused[:_N_BEST]}
        chosen = self._chosen(_MAX_POINTS, {*best, self._latest})
        is_new_space = self._encode([self._trial(number) for number in chosen])
        steps = Steps(first=1, last=self._last_step)
        is_due = self._n_known <= _N_QUICK or self._n_known >= _REFIT_AT * self._n_fitted
        if is_new_space or is_due:
            few = [number for number in self._chosen(_MAX_FITTED, ()) if number in chosen]
            self._model.fit(*self._points(few or chosen), steps)
            self._n_fitted = self._n_known
        self._model.learn(*self._points(chosen), steps, -self._bar)
        self._learned_at = self._n_known, self.is_final

    @property
    def _bar(self) -> float:
        """The loss that is to be bettered."""
        if not self.is_final:
            return self._best
        # Nothing is won before a training has come to its end.
        worst = max(loss for loss, _ in self._rungs[0].came if math.isfinite(loss))
        return min((loss for _, loss in self.ends.values()), default=worst)

    def _chosen(self, limit: int, wanted: Collection[int]) -> list[int]:
        """A representative subset of trials: from each rung some, from best to worst."""
        if self._losses.n_losses <= limit:
            return list(self._losses)
        chosen = dict.fromkeys(number for number in sorted(wanted) if number in self._losses)
        n_points = sum(len(self._losses[number]) for number in chosen)
        for rung in reversed(range(len(self._rungs))):
            came = self._rungs[rung].came
            # What is left is shared evenly among the rungs; each trial has come to those below.
            until = n_points + max(0, limit - n_points) // (rung + 1)
            room = (until - n_points) // (rung + 1)
            for index in np.unique(np.linspace(0, len(came) - 1, min(room, len(came))).astype(int)):
                number = came[index][1]
                n_more = len(self._losses[number])
                if number not in chosen and n_points + n_more <= until:
                    chosen[number] = None
                    n_points += n_more
        return list(chosen)

    def _points(self, numbers: Sequence[int]) -> tuple[list[Place], list[float]]:
        """Reports of trials at the ends of slices and at their own ends, with scores."""
        places, scores = [], []
        for number in numbers:
            trial = self._trial(number)
            row = self._row(trial)
            for step, loss in self._curve_of(number).items():
                places.append(Place(number=number, row=row, step=step))
                scores.append(-math.inf if is_infeasible(trial) else -loss)
        return places, scores

    def _curve_of(self, number: int) -> Mapping[int, float]:
        """Losses of a trial by step."""
        losses = self._losses[number]
        # One report may have come to several rungs at once: its step is that of the last.
        curve = {
            self.step_of(rung): loss
            for rung, loss in enumerate(losses)
            if rung + 1 == len(losses) or losses[rung + 1] != loss
        }
        if (end := self.ends.get(number)) is not None:
            curve[max(1, end[0])] = end[1]
        return curve

    def _encode(self, trials: Sequence[FrozenTrial]) -> bool:
        """Finds the parameters that all given trials have; returns whether these changed."""
        space: dict[str, BaseDistribution] = {
            name: each
            for name, each in CommonSpace().of(trials).items()
            if all(name in trial.params for trial in trials)
        }
        is_new = space != (self._encoding.space if self._encoding is not None else {})
        if is_new:
            self._encoding = Encoding(space) if space else None
        return is_new

    def _row(self, trial: FrozenTrial) -> Array:
        return np.zeros(0) if self._encoding is None else self._encoding.row(trial)

    def _trial(self, number: int) -> FrozenTrial:
        assert self.trial_of is not None, "whoever makes the table says where trials are"
        return self.trial_of(number)


def why_not(standing: SliceStanding, step: int, value: float, name: str) -> str:
    """Explains why a trial does not continue.

    Args:
        standing: The trial's standing.
        step: The end of its slice.
        value: Its reported value.
        name: The objective's name.

    Returns:
        A sentence without the full stop.
    """
    told = f"at the end of its slice (step {step}), {name} {value:.6g}"
    if math.isnan(value) or math.isinf(standing.loss):
        return told
    if math.isnan(standing.worth):
        return f"{told}: no trial continues before {N_LEAST} trials have ended a slice"
    other = "a new trial" if standing.other is None else f"trial {standing.other}, which waits,"
    return (
        f"{told}: continuing is expected to better the best {name} by {standing.worth:.3g} a "
        f"{standing.unit}, and {other} by {standing.other_worth:.3g}"
    )
