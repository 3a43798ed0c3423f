"""The probability that a configuration is feasible: enough memory, finite values, constraints met.

A suggestion's expected improvement is multiplied by it (Gardner et al., "Bayesian optimization with
inequality constraints", ICML 2014; Gelbart, Snoek and Adams, arXiv:1403.5607), so that a failure
lowers the feasibility of its neighbours, not their predicted value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial, TrialState

from tuner.search.samplers.curve_gp.acquisition import RowOf, Scales
from tuner.search.samplers.curve_gp.points import is_informative
from tuner.search.samplers.curve_gp.regression import Regression, normal_share_below, unfitted
from tuner.search.trial_attributes.infeasible import is_marked, is_of_the_tuner
from tuner.search.trial_attributes.memo import TrialMemo
from tuner.search.trial_attributes.vector_curve import has_diverged

Array = NDArray[np.float64]

#: The name of whether a trial worked.
_WORKS = ""
_LARGEST = 1e100


def is_infeasible(trial: FrozenTrial) -> bool:
    """Whether a trial broke a constraint."""
    return any(value > 0 for value in trial.constraints.values())


def works(trial: FrozenTrial) -> bool:
    """Whether a trial neither failed because of its configuration nor reported NaN."""
    if is_marked(trial):
        return False
    return trial.state is TrialState.COMPLETE or not has_diverged(trial)


def is_able(trial: FrozenTrial) -> bool:
    """Whether a trial worked, and broke no constraint so far."""
    return not is_infeasible(trial) and works(trial)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What one trial says of feasibility."""

    works: bool
    is_informative: bool
    constraints: Mapping[str, float]

    @classmethod
    def of(cls, trial: FrozenTrial) -> _Outcome:
        return cls(
            works=works(trial),
            is_informative=is_informative(trial),
            constraints=trial.constraints,
        )


class Feasibility:
    """Feasibility model of one study.

    Constraints with a value are regressed on it, so that the distance to the bound counts; whether
    a trial worked at all is regressed as 1 or -1 (least-squares classification; Rasmussen and
    Williams, section 6.5).
    """

    def __init__(self) -> None:
        self._models: dict[str, Regression] = {}
        self._outcomes = TrialMemo(_Outcome.of)

    def learn(
        self, trials: Sequence[FrozenTrial], row_of: RowOf, scales: Scales, *, limit: int
    ) -> Callable[[Array], Array] | None:
        """Fits the model.

        Args:
            trials: The study's trials.
            row_of: Encodes a trial.
            scales: Length scales of configurations.
            limit: Maximum number of trials, those that break a constraint first.

        Returns:
            The probability, [m] for [m, c] configurations; None if no trial has failed yet.
        """
        n_trials = max((each.number for each in trials), default=0) + 1
        known = []
        outcomes = [*zip(trials, self._outcomes.of(trials), strict=True)]
        for name, violations in _violations(outcomes, limit):
            x = np.stack([row_of(each) for each, _ in violations])
            y = np.array([value for _, value in violations])
            if (y <= 0.0).any():
                center, scale = y.mean(), y.std()
                model = self._models.setdefault(name, Regression())
                process = model.fit(x, (y - center) / scale, scales, n_trials=n_trials)
            else:
                # No trial has kept it: the most likely prediction, that none ever does, is useless.
                center, scale = 0.0, y.mean()
                process = unfitted(scales)
            y, bound = (y - center) / scale, -center / scale
            known.append((bound, process.given(x, y)))
        if not known:
            return None

        def probability(rows: Array) -> Array:
            found = np.ones(len(rows))
            for bound, posterior in known:
                mean, deviation = posterior.predict(rows)
                found *= normal_share_below((bound - mean) / deviation)
            return found

        return probability


def _violations(
    outcomes: Sequence[tuple[FrozenTrial, _Outcome]], limit: int
) -> Iterator[tuple[str, list[tuple[FrozenTrial, float]]]]:
    """By constraint that some trial breaks: trials and by how much they do, as far as is known."""
    names = {key for _, of in outcomes for key in of.constraints if not is_of_the_tuner(key)}
    for name in [_WORKS, *sorted(names)]:
        found = [(trial, _violation(of, name)) for trial, of in outcomes]
        known = [(trial, value) for trial, value in found if value is not None]
        if not any(value > 0 for _, value in known):
            continue
        # Of those that keep it the newest.
        known.sort(key=lambda each: (each[1] <= 0, -each[0].number))
        chosen = known[:limit]
        yield name, list(zip([each for each, _ in chosen], _scaled(chosen), strict=True))


def _violation(outcome: _Outcome, name: str) -> float | None:
    if name:
        value = outcome.constraints.get(name)
        return value if value is None or math.isfinite(value) else math.copysign(_LARGEST, value)
    if not outcome.works:
        return 1.0
    return -1.0 if outcome.is_informative else None


def _scaled(known: Sequence[tuple[FrozenTrial, float]]) -> list[float]:
    """Scales violations: linear near the bound, logarithmic far from it.

    A few large ones thus do not dominate all others (Eriksson and Poloczek, "Scalable constrained
    Bayesian optimization", arXiv:2002.08526). Zero means that a constraint is kept, without saying
    how well: it counts like minus the median violation.
    """
    unit = float(np.median([value for _, value in known if value > 0]))
    values = [-unit if value == 0 else value for _, value in known]
    return [math.copysign(math.log1p(abs(value) / unit), value) for value in values]
