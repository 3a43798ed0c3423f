"""Learns from unfinished trainings: a Gaussian process over configuration and step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.search.samplers.curve_gp.points import Observed, Steps, inputs, is_informative, observed
from tuner.store.optuna_compat import SearchSpaceTransform, trials_of

if TYPE_CHECKING:
    from tuner.search.samplers.curve_gp.gaussian_process import GaussianProcess

Array = NDArray[np.float64]

#: A suggestion takes as long with more.
MAX_POINTS = 300
#: Before anything is known: in parts of a parameter's range, and of the logarithm of the last step.
_LENGTH_OF_PARAMETER = 0.6
_LENGTH_OF_STEPS = 0.5
#: Of a parameter with choices, in unary form: two choices are then as far apart, in the mean of
#: squares, as two values that are drawn at random from a range (2 in place of 1/6).
_LENGTH_OF_CHOICE = _LENGTH_OF_PARAMETER * math.sqrt(12.0)
#: Its parameters are found anew when there are so many times the trials.
_REFIT_AT = 1.2
_N_UNIFORM = 500
_N_LEADERS = 5
_N_NEAR_EACH = 40
_NEAR = 0.1
#: Of all candidates so many are made into parameters and judged once more.
_N_DECODED = 50


class CurveGPSampler(BaseSampler):
    """Expected improvement at the last step, predicted from all that was reported on the way.

    One Gaussian process over configuration and step takes in pruned and running trials as far as
    they came: values of unlike steps are never compared, but the step is an input (as in Swersky,
    Snoek and Adams, "Freeze-thaw Bayesian optimization", arXiv:1406.3896, and Kandasamy et al.,
    "Multi-fidelity Bayesian optimisation with continuous approximations", arXiv:1703.06240). The
    next configuration is the one with the largest expected improvement (Jones, Schonlau and Welch,
    1998) at the last step. Trials that run count as if they ended as predicted, so that several
    asked for at a time differ (the kriging believer; Ginsbourger, Le Riche and Carraro, 2010).
    One that broke a constraint counts as the worst. Choices are compared by Hamming distance with a
    length each (Hutter, Hoos and Leyton-Brown, 2011; the categorical kernels of CoCaBO,
    arXiv:1906.08878, and CASMOPOLITAN, arXiv:2102.07188, are built on the same distance).

    Args:
        seed: Of its random numbers.
        n_startup_trials: As many are drawn at random first.
        random_share: Of the later ones so many are, too: where early curves mislead it, it is no
            slower than random search by more than that (BOHB; Falkner, Klein and Hutter, 2018,
            with the same third).
        covers: In a study of the tuner, what is drawn at random is taken from a sequence that
            covers the space (`tuner.search.samplers.covering`); if false, each draw is independent.
    """

    def __init__(
        self,
        seed: int | None = None,
        n_startup_trials: int = 10,
        random_share: float = 1 / 3,
        *,
        covers: bool = True,
    ) -> None:
        if n_startup_trials < 1:
            raise ValueError(f"n_startup_trials is {n_startup_trials}, but must be 1 or more.")
        if not 0.0 <= random_share <= 1.0:
            raise ValueError(f"random_share is {random_share}, but must be from 0 to 1.")
        self.random_share = random_share
        self.covers = covers
        self.n_startup_trials = n_startup_trials
        self._rng = np.random.default_rng(seed)
        #: Draws what the model does not suggest.
        self.independent: BaseSampler = RandomSampler(seed=seed)
        self._model: GaussianProcess | None = None
        self._columns: list[int] = []
        self._n_fitted = 0
        self._encoding: Encoding | None = None

    def reseed_rng(self) -> None:
        self._rng = np.random.default_rng()
        self.independent.reseed_rng()

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        trials = [each for each in trials_of(study) if each.distributions]
        return common_space(trials)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        self._raise_error_if_multi_objective(study)
        trials = [each for each in trials_of(study) if search_space.keys() <= each.params.keys()]
        n_known = sum(is_informative(each) for each in trials)
        if not search_space or n_known < self.n_startup_trials:
            return {}
        if self._rng.random() < self.random_share:
            return {}
        is_maximized = study.directions[0] is StudyDirection.MAXIMIZE
        points, steps = observed(
            [each for each in trials if not is_infeasible(each)],
            is_maximized=is_maximized,
            limit=MAX_POINTS,
        )
        if not points:
            return {}
        return self._suggest(trials, points, steps, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        self._raise_error_if_multi_objective(study)
        return self.independent.sample_independent(study, trial, param_name, param_distribution)

    # -- inside ------------------------------------------------------------------------------

    def _suggest(
        self,
        trials: Sequence[FrozenTrial],
        points: list[Observed],
        steps: Steps,
        space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        encoding = self._encoding_of(space)
        worst = min(each.score for each in points)
        bad = [
            Observed(trial=each, step=steps.last, score=worst)
            for each in trials
            if is_infeasible(each)
        ]
        x = inputs([*points, *bad], steps, encoding.row)
        scores = np.array([each.score for each in [*points, *bad]])
        y = (scores - scores.mean()) / (scores.std() or 1.0)
        model = self._learned(x, y, encoding, n_trials=max(each.number for each in trials) + 1)
        known = model.given(x, y)
        running = [each for each in trials if each.state is TrialState.RUNNING]
        # Where trials are going to end, as far as can be said.
        ends, _ = known.predict(_at_the_end(x[:, :-1]))
        best = max(float(y.max()), float(ends.max()))
        if running:
            rows = _at_the_end(np.stack([encoding.row(each) for each in running]))
            believed, _ = known.predict(rows)
            known = model.given(np.vstack([x, rows]), np.append(y, believed))
        leaders = np.stack([encoding.row(each) for each in _leaders(points)])
        candidates = self._candidates(leaders, encoding)
        gains = expected_improvement(*known.predict(_at_the_end(candidates)), best)
        promising = candidates[np.argsort(-gains)[:_N_DECODED]]
        # What is suggested is what was judged: whole numbers and choices.
        decoded = [encoding.decode(each) for each in promising]
        rows = np.stack([encoding.encode(each) for each in decoded])
        gains = expected_improvement(*known.predict(_at_the_end(rows)), best)
        return decoded[int(np.argmax(gains))]

    def _encoding_of(self, space: Mapping[str, BaseDistribution]) -> Encoding:
        if self._encoding is None or self._encoding.space != space:
            self._encoding = Encoding(space)
        return self._encoding

    def _learned(self, x: Array, y: Array, encoding: Encoding, *, n_trials: int) -> GaussianProcess:
        from tuner.search.samplers.curve_gp.gaussian_process import (
            GaussianProcess,  # torch takes seconds.
        )

        # Several threads may ask (Optuna's n_jobs): each goes on with the model that it found.
        model = self._model
        columns = [*encoding.columns, len(encoding.space)]
        if model is None or self._columns != columns:
            lengths = [*encoding.length_scales, _LENGTH_OF_STEPS]
            model, self._n_fitted = GaussianProcess(lengths, columns=columns), 0
            self._model, self._columns = model, columns
        if n_trials >= self._n_fitted * _REFIT_AT:
            model.fit(x, y)
            self._n_fitted = n_trials
        return model

    def _candidates(self, leaders: Array, encoding: Encoding) -> Array:
        """[m, d], anywhere and near the leaders, of whose choices one changes in the mean."""
        anywhere = self._rng.random((_N_UNIFORM, leaders.shape[1]))
        near = np.repeat(leaders, _N_NEAR_EACH, axis=0)
        near = near + self._rng.normal(0.0, _NEAR, size=near.shape)
        for columns in encoding.choices:
            is_changed = self._rng.random(len(near)) < 1.0 / len(encoding.choices)
            near[np.ix_(is_changed, columns)] = self._rng.random((is_changed.sum(), len(columns)))
        rows = np.clip(np.vstack([anywhere, near]), 0.0, 1.0)
        for columns in encoding.choices:
            # What is judged is a choice, not a point between some.
            rows[:, columns] = np.eye(len(columns))[rows[:, columns].argmax(axis=1)]
        return rows


class Encoding:
    """Configurations of a space as numbers from 0 to 1.

    Args:
        space: Its parameters.
    """

    def __init__(self, space: Mapping[str, BaseDistribution]) -> None:
        self.space = dict(space)
        self._transform = SearchSpaceTransform(self.space, transform_0_1=True)
        self._rows: dict[int, Array] = {}
        #: Which parameter each column is of.
        self.columns = [int(place) for place in self._transform.encoded_column_to_column]
        is_choice = [isinstance(each, CategoricalDistribution) for each in self.space.values()]
        #: Before anything is known, by parameter.
        self.length_scales = [
            _LENGTH_OF_CHOICE if each else _LENGTH_OF_PARAMETER for each in is_choice
        ]
        #: The columns of each parameter with choices, one for each choice.
        self.choices = [
            columns
            for columns, each in zip(
                self._transform.column_to_encoded_columns, is_choice, strict=True
            )
            if each
        ]

    def row(self, trial: FrozenTrial) -> Array:
        """[d], of a trial, whose parameters no longer change."""
        if trial.number not in self._rows:
            self._rows[trial.number] = self.encode(trial.params)
        return self._rows[trial.number]

    def encode(self, params: Mapping[str, Any]) -> Array:
        """[d], of a configuration, which may have other parameters beside."""
        chosen = {name: params[name] for name in self.space}
        return np.asarray(self._transform.transform(chosen))

    def draw(self, rng: np.random.Generator) -> Array:
        """[d], of a configuration at random."""
        return self.encode(self.decode(rng.random(len(self._transform.bounds))))

    def decode(self, row: Array) -> dict[str, Any]:
        return self._transform.untransform(row)


def _at_the_end(configurations: Array) -> Array:
    """[m, d + 1], of [m, d] configurations: their last step, which is 1."""
    return np.hstack([configurations, np.ones((len(configurations), 1))])


def _leaders(points: Sequence[Observed]) -> list[FrozenTrial]:
    """The trials with the best values so far, the best first."""
    best: dict[int, Observed] = {}
    for each in sorted(points, key=lambda point: (-point.score, point.trial.number)):
        best.setdefault(each.trial.number, each)
        if len(best) == _N_LEADERS:
            break
    return [each.trial for each in best.values()]


def common_space(trials: Sequence[FrozenTrial]) -> dict[str, BaseDistribution]:
    """The parameters that all trials have, those that run only where none has ended."""
    ended = [each for each in trials if each.state.is_finished()]
    common: dict[str, BaseDistribution] | None = None
    for trial in ended or trials:
        has = trial.distributions
        common = {
            name: each
            for name, each in (has if common is None else common).items()
            if name in has and has[name] == each
        }
    return {name: each for name, each in sorted((common or {}).items()) if not each.single()}


def is_infeasible(trial: FrozenTrial) -> bool:
    """Whether a trial broke a constraint."""
    return any(value > 0 for value in trial.constraints.values())


def expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """[m], over the best (Jones, Schonlau and Welch, 1998), of [m] means and deviations."""
    z = (mean - best) / deviation
    below = 0.5 * (1.0 + np.vectorize(math.erf)(z / math.sqrt(2.0)))
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    improvement: Array = deviation * (z * below + density)
    return improvement
