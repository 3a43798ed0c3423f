"""Learns from unfinished trainings: a Gaussian process over configuration and step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from tuner.search.samplers.curve_gp.acquisition import Scales
from tuner.search.samplers.curve_gp.activity import Activity
from tuner.search.samplers.curve_gp.encoding import Encoding
from tuner.search.samplers.curve_gp.feasibility import Feasibility
from tuner.search.samplers.curve_gp.inferred_space import CommonSpace, inferred_space
from tuner.search.samplers.curve_gp.points import N_LEADERS, is_informative
from tuner.search.samplers.curve_gp.several_objectives import SeveralObjectives
from tuner.search.samplers.curve_gp.single_objective import OneObjective
from tuner.search.trial_attributes.memo import TrialMemo
from tuner.search_spaces import SearchSpace
from tuner.store.optuna_compat import trials_of

Array = NDArray[np.float64]

#: A suggestion takes as long with more.
MAX_POINTS = 300
#: Before anything is known: in parts of the logarithm of the last step.
_LENGTH_OF_STEPS = 0.5
_N_UNIFORM = 500
_N_NEAR_EACH = 40
_NEAR = 0.1
_DECADES = 3.0
#: Fraction of candidates with a changed choice of which a number is redrawn as well, each with a
#: probability of one in their number.
_REDRAWN_SHARE = 0.5
#: Fraction of suggestions of the model for one objective that differ from the best trial in a
#: choice.
_OTHER_CHOICE_SHARE = 0.25
#: Minimum probability that such a suggestion breaks no constraint and does not fail.
_LEAST_FEASIBLE = 0.5
#: Number of candidates that are decoded into parameters and evaluated again.
_N_DECODED = 50


class CurveGPSampler(BaseSampler):
    """Expected improvement at the last step, predicted from all intermediate reports.

    One Gaussian process over configuration and step also uses pruned and running trials: values at
    different steps are never compared, because the step is an input (as in Swersky, Snoek and
    Adams, "Freeze-thaw Bayesian optimization", arXiv:1406.3896, and Kandasamy et al.,
    "Multi-fidelity Bayesian optimisation with continuous approximations", arXiv:1703.06240). The
    next configuration maximizes the expected improvement (Jones, Schonlau and Welch, 1998) at the
    last step. With one objective, where trials report more than once, it is computed with twice the
    deviations of the process (Wang and de Freitas, arXiv:1406.7758). Reports until the last rung
    whose ranking is not used do not count (`tuner.search.rungs.order.check`). Running trials count
    as if they ended as predicted, so that parallel suggestions differ (the kriging believer;
    Ginsbourger, Le Riche and Carraro, 2010). The improvement is multiplied by the probability that
    the configuration breaks no constraint, does not run out of memory and does not diverge
    (`tuner.search.samplers.curve_gp.feasibility`). Choices are compared by Hamming distance with a
    length scale each (Hutter, Hoos and Leyton-Brown, 2011; the categorical kernels of CoCaBO,
    arXiv:1906.08878, and CASMOPOLITAN, arXiv:2102.07188, are built on the same distance). With one
    objective, one in four suggestions of the model differs from the best trial in a choice: the
    expected improvement of ever closer configurations with the same choices decreases slowly, so
    that others would be tried late or never.

    With several objectives each has a process of its own, and the next configuration maximizes the
    expected hypervolume improvement (`tuner.search.samplers.curve_gp.several_objectives`).

    Args:
        seed: Seed of its random numbers.
        n_startup_trials: Number of initial random trials.
        random_share: Fraction of later trials that are random, too: if early curves mislead the
            model, it is slower than random search by no more than that (BOHB; Falkner, Klein and
            Hutter, 2018, with the same third).
        covers: In a study of the tuner, random trials are taken from a space-filling sequence
            (`tuner.search.samplers.covering`); if false, each draw is independent.
        scalarizes: With several objectives, each suggestion uses random weights instead (ParEGO),
            as always beyond four objectives.
    """

    def __init__(
        self,
        seed: int | None = None,
        n_startup_trials: int = 10,
        random_share: float = 1 / 3,
        *,
        covers: bool = True,
        scalarizes: bool = False,
    ) -> None:
        if n_startup_trials < 1:
            raise ValueError(f"n_startup_trials is {n_startup_trials}, but must be 1 or more.")
        if not 0.0 <= random_share <= 1.0:
            raise ValueError(f"random_share is {random_share}, but must be from 0 to 1.")
        self.random_share = random_share
        self.covers = covers
        self.n_startup_trials = n_startup_trials
        self._rng = np.random.default_rng(seed)
        #: Draws the configurations that the model does not suggest.
        self.independent: BaseSampler = RandomSampler(seed=seed)
        self._one = OneObjective(MAX_POINTS)
        self._several = SeveralObjectives(MAX_POINTS, scalarizes=scalarizes)
        self._feasibility = Feasibility()
        self._are_informative = TrialMemo(is_informative)
        self._common_space = CommonSpace()
        self._encoding: Encoding | None = None
        self._is_declared = False
        self._activity: Activity | None = None

    def declare(self, space: SearchSpace) -> None:
        """Names the study's space; without, it is inferred from the trials."""
        self._is_declared = True
        self._activity = _activity_in(space)

    def reseed_rng(self) -> None:
        self._rng = np.random.default_rng()
        self.independent.reseed_rng()

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        trials = trials_of(study)
        self._infer(trials)
        if self._activity is not None:
            return dict(self._activity.space)
        return self._common_space.of([each for each in trials if each.distributions])

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        shown = trials_of(study)
        self._infer(shown)
        trials = [each for each in shown if self._has_all(each, search_space)]
        n_known = sum(self._are_informative.of(trials))
        if not search_space or n_known < self.n_startup_trials:
            return {}
        if self._rng.random() < self.random_share:
            return {}
        return self._suggest(trials, search_space, study.directions)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self.independent.sample_independent(study, trial, param_name, param_distribution)

    # -- inside ------------------------------------------------------------------------------

    def _infer(self, trials: Sequence[FrozenTrial]) -> None:
        """Infers the conditions of a space that is not declared."""
        if self._is_declared:
            return
        space = inferred_space(trials)
        if self._activity is None or self._activity.declared != space:
            self._activity = _activity_in(space)

    def _has_all(self, trial: FrozenTrial, space: Mapping[str, BaseDistribution]) -> bool:
        if self._activity is not None:
            return self._activity.is_whole(trial)
        return space.keys() <= trial.params.keys()

    def _suggest(
        self,
        trials: Sequence[FrozenTrial],
        space: dict[str, BaseDistribution],
        directions: Sequence[StudyDirection],
    ) -> dict[str, Any]:
        encoding = self._encoding_of(space)
        scales = Scales(columns=encoding.columns, lengths=encoding.length_scales)
        probability = self._feasibility.learn(trials, encoding.row, scales, limit=MAX_POINTS)
        model = self._one if len(directions) == 1 else self._several
        with_steps = scales.with_steps(_LENGTH_OF_STEPS)
        known = model.learn(trials, directions, encoding.row, with_steps, self._rng)
        if known is None and probability is None:
            return {}

        def worth(rows: Array) -> Array:
            # Where nothing has worked yet: what may work.
            gains = np.ones(len(rows)) if known is None else known.gains(rows)
            return gains if probability is None else gains * probability(rows)

        leaders = [] if known is None else known.leaders
        candidates = self._candidates(self._some(leaders), encoding)
        has_best = len(directions) == 1 and len(leaders) > 0
        if has_best and encoding.choices and self._rng.random() < _OTHER_CHOICE_SHARE:
            is_other = encoding.differ_in_choices(candidates, encoding.row(leaders[0]))
            if probability is not None:
                is_other &= probability(candidates) > _LEAST_FEASIBLE
            candidates = candidates[is_other] if is_other.any() else candidates
        promising = candidates[np.argsort(-worth(candidates))[:_N_DECODED]]
        # What is suggested is what was judged: whole numbers and choices.
        decoded = [encoding.decode(each) for each in promising]
        rows = np.stack([encoding.encode(each) for each in decoded])
        return decoded[int(np.argmax(worth(rows)))]

    def _some(self, leaders: Sequence[FrozenTrial]) -> Sequence[FrozenTrial]:
        """A front may be long."""
        if len(leaders) <= N_LEADERS:
            return leaders
        return [leaders[k] for k in self._rng.choice(len(leaders), N_LEADERS, replace=False)]

    def _encoding_of(self, space: Mapping[str, BaseDistribution]) -> Encoding:
        known = self._encoding
        if known is None or known.space != space or known.activity is not self._activity:
            known = self._encoding = Encoding(space, self._activity)
        return known

    def _candidates(self, leaders: Sequence[FrozenTrial], encoding: Encoding) -> Array:
        """[m, d], uniform, and near the leaders with one choice changed on average.

        The optimum of a number may depend on a choice (of the learning rate on the optimizer), so
        that neither is an improvement without the other: some have both changed.
        """
        anywhere = self._rng.random((_N_UNIFORM, len(encoding.columns)))
        if not leaders:
            return encoding.whole(anywhere)
        rows = np.repeat(np.stack([encoding.row(each) for each in leaders]), _N_NEAR_EACH, axis=0)
        near = rows + self._steps(len(rows)) * self._rng.normal(size=rows.shape)
        # A changed choice may activate them; nothing is known of good values then.
        is_absent = np.stack([encoding.absent(each.params) for each in leaders])
        is_absent = np.repeat(is_absent, _N_NEAR_EACH, axis=0)
        near[is_absent] = self._rng.random(is_absent.sum())
        if encoding.choices:
            self._change_choices(near, rows, encoding)
        return encoding.whole(np.vstack([anywhere, near]))

    def _change_choices(self, near: Array, leaders: Array, encoding: Encoding) -> None:
        """Redraws one choice on average; where one has changed, in half of the cases, one number.

        Args:
            near: [m, d], changed in place.
            leaders: [m, d], what each was near.
            encoding: Their encoding.
        """
        for columns in encoding.choices:
            is_drawn = self._rng.random(len(near)) < 1.0 / len(encoding.choices)
            near[np.ix_(is_drawn, columns)] = self._rng.random((is_drawn.sum(), len(columns)))
        has_changed = encoding.differ_in_choices(encoding.whole(near), leaders)
        moves = has_changed & (self._rng.random(len(near)) < _REDRAWN_SHARE)
        for column in encoding.number_columns:
            is_one = self._rng.random(len(near)) < 1.0 / len(encoding.number_columns)
            near[moves & is_one, column] = self._rng.random((moves & is_one).sum())

    def _steps(self, n: int) -> Array:
        """[n, 1], distances of candidates from a leader.

        The right distance depends on how exactly the optimum is known: for half of the candidates,
        every order of magnitude is equally likely, down to `_NEAR` / 1,000.
        """
        is_fine = self._rng.random((n, 1)) < 0.5
        return _NEAR * 10.0 ** (-_DECADES * is_fine * self._rng.random((n, 1)))


def _activity_in(space: SearchSpace) -> Activity | None:
    """The conditions of a space; None without any."""
    return Activity(space) if any(each.when for each in space.parameters) else None
