"""A prior over good configurations, which is used as long as it pays.

From an expert's guess, or from the best configurations of earlier studies.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.search.samplers.curve_gp.feasibility import is_infeasible
from tuner.search.samplers.curve_gp.points import is_informative
from tuner.search.samplers.wrapper import SamplerAround
from tuner.search_spaces import ParamValue
from tuner.store.optuna_compat import (
    SearchSpaceTransform,
    can_hold,
    storage_of,
    trial_id_of,
    trials_of,
)

#: System attribute of a trial: the configuration that it was drawn around, from 1; absent for none.
PRIOR_ATTR = "tuner:prior"
#: Whether it is that configuration itself.
EXACT_ATTR = "tuner:prior_itself"
_FIXED_PARAMS_ATTR = "fixed_params"

#: In parts of a parameter's range, as in PriorBand.
_DEVIATION = 0.25
#: Probability of the prior's choice, for a parameter with choices.
_CHANCE_OF_CHOICE = 0.5
#: From then on the prior's trials grow with the logarithm of all.
_FULL_UNTIL = 20
#: A trial is a success among the best quarter.
_BEST = 0.25
#: Number of first trials that are compared; later ones are rarely drawn from a prior.
_N_COMPARED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Number of comparable trials of a kind, and of those among the best."""

    n: int = 0
    n_best: int = 0

    @property
    def rate(self) -> float:
        """Smoothed rate: a quarter without data."""
        return (self.n_best + 2 * _BEST) / (self.n + 2)


class PriorSampler(SamplerAround):
    """Draws some configurations around believed ones, the others with another sampler.

    The first trial is the first believed configuration itself. Of the later trials a share comes
    from the prior: each other believed configuration once, then draws around one of them: a normal
    distribution of 0.25 of each parameter's range (on the log scale if it has one), truncated at
    the ends; a choice is the believed one in half of all draws. Parameters without a belief are
    drawn at random. The mixture and these distributions are PriorBand's (Mallik et al., "PriorBand:
    practical hyperparameter optimization in the age of deep learning", NeurIPS 2023,
    arXiv:2306.12370), which weighs its parts by how likely they make the best configurations so
    far. Here the share weighs how often the prior's trials are among the best quarter against how
    often the others are (a^2 to b^2), so that a wrong prior is dropped after a few trials. It falls
    as 20/n after 20 trials, like the exponent of piBO (Hvarfner et al., ICLR 2022,
    arXiv:2204.11051), so that a good prior is left behind once the sampler knows more.

    With the best configurations of earlier studies it starts in their region, which a bounding box
    would fix permanently (Perrone et al., "Learning search spaces for Bayesian optimization",
    NeurIPS 2019, arXiv:1909.12552); they are tried first as in Feurer et al. ("Initializing
    Bayesian hyperparameter optimization via meta-learning", AAAI 2015).

    Args:
        inner: The other sampler.
        believed: Configurations, by parameter name; at least one.
        seed: Seed of its random numbers.
    """

    def __init__(self, inner: BaseSampler, *believed: Mapping[str, ParamValue], seed: int) -> None:
        super().__init__(inner)
        self._believed = tuple(map(dict, believed))
        self._rng = np.random.default_rng(seed)
        self._random = RandomSampler(seed=seed)
        #: Whether the next trial is drawn around the prior; None if not decided.
        self._next: bool | None = None
        #: The trial that is drawn around it now.
        self._drawn: int | None = None

    def __str__(self) -> str:
        return f"{self.inner} with a prior"

    def is_next(self, study: optuna.Study) -> bool:
        """Whether the next new trial comes from the prior; the other sampler is then not used."""
        if self._next is None:
            is_first = not any(PRIOR_ATTR in each.system_attrs for each in _trials(study))
            self._next = is_first or bool(self._rng.random() < self.share(study))
        return self._next

    def share(self, study: optuna.Study) -> float:
        """Fraction of the next trials that are drawn around the prior."""
        trials = _trials(study)
        own, others = tallies(trials, study.directions)
        decay = min(1.0, _FULL_UNTIL / max(1, len(trials)))
        return decay * own.rate**2 / (own.rate**2 + others.rate**2)

    # -- as Optuna calls it ------------------------------------------------------------------

    def reseed_rng(self) -> None:
        self._rng = np.random.default_rng()
        self._random.reseed_rng()
        super().reseed_rng()

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        # A trial with given parameters, or those of an earlier attempt, is no suggestion.
        is_given = _FIXED_PARAMS_ATTR in trial.system_attrs or bool(trial.params)
        if is_given or not self.is_next(study):
            self._next = self._next if is_given else None
            return super().infer_relative_search_space(study, trial)
        self._next, self._drawn = None, trial.number
        untried = self._untried(study)
        place = untried[0] if untried else 1 + int(self._rng.integers(len(self._believed)))
        storage_of(study).set_trial_system_attr(trial_id_of(trial), PRIOR_ATTR, place)
        if untried:
            storage_of(study).set_trial_system_attr(trial_id_of(trial), EXACT_ATTR, True)
        return {}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if trial.number == self._drawn:
            return {}
        return super().sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        if not trial.system_attrs.get(PRIOR_ATTR):
            return super().sample_independent(study, trial, param_name, param_distribution)
        # The study file may believe in others since.
        place = (int(trial.system_attrs[PRIOR_ATTR]) - 1) % len(self._believed)
        guess = self._believed[place].get(param_name)
        if guess is None or not can_hold(param_distribution, guess):
            return self._random.sample_independent(study, trial, param_name, param_distribution)
        if trial.system_attrs.get(EXACT_ATTR):
            return guess
        return self._near(guess, param_distribution)

    # -- inside ------------------------------------------------------------------------------

    def _untried(self, study: optuna.Study) -> list[int]:
        """Places of the believed configurations that no trial has tried as they are."""
        trials = _trials(study)
        tried = {t.system_attrs[PRIOR_ATTR] for t in trials if EXACT_ATTR in t.system_attrs}
        return [n for n in range(1, len(self._believed) + 1) if n not in tried]

    def _near(self, guess: ParamValue, distribution: BaseDistribution) -> ParamValue:
        if isinstance(distribution, CategoricalDistribution):
            others = [each for each in distribution.choices if each != guess]
            if not others or self._rng.random() < _CHANCE_OF_CHOICE:
                return guess
            return others[int(self._rng.integers(len(others)))]
        transform = SearchSpaceTransform({"x": distribution}, transform_0_1=True)
        middle = float(transform.transform({"x": guess})[0])
        drawn = -1.0
        # At least every third draw is within, wherever the middle is.
        while not 0.0 <= drawn <= 1.0:
            drawn = self._rng.normal(middle, _DEVIATION)
        value: ParamValue = transform.untransform(np.array([drawn]))["x"]
        return value


def tallies(
    trials: Sequence[FrozenTrial], directions: Sequence[StudyDirection]
) -> tuple[Tally, Tally]:
    """Counts of good trials, around the prior and of all others.

    Trials are compared at one step, the last that half of them reached. A trial that was pruned
    earlier is not among the best; a running one that has not reached the step is not compared. With
    several objectives no trial is.

    Args:
        trials: The study's trials.
        directions: Directions of its objectives.
    """
    known = [each for each in trials[:_N_COMPARED] if is_informative(each)]
    if len(directions) > 1 or not known:
        return Tally(), Tally()
    step = statistics.median_low(max(each.intermediate_values, default=0) for each in known)
    sign = 1.0 if directions[0] is StudyDirection.MAXIMIZE else -1.0
    worth = {each.number: _worth(each, step, sign) for each in known}
    compared = {number: value for number, value in worth.items() if value is not None}
    if not compared:
        return Tally(), Tally()
    bar = sorted(compared.values(), reverse=True)[max(1, round(_BEST * len(compared))) - 1]
    kinds = {each.number: bool(each.system_attrs.get(PRIOR_ATTR)) for each in known}
    own, others = (
        Tally(
            n=sum(kinds[number] is kind for number in compared),
            n_best=sum(
                kinds[number] is kind and value >= bar and value > -np.inf
                for number, value in compared.items()
            ),
        )
        for kind in (True, False)
    )
    return own, others


def _worth(trial: FrozenTrial, step: int, sign: float) -> float | None:
    """The larger the better; None if not known yet."""
    if is_infeasible(trial):
        return -np.inf
    reached = [each for each in trial.intermediate_values if each <= step]
    last = max(trial.intermediate_values, default=0)
    if trial.state is TrialState.COMPLETE and last <= step and trial.value is not None:
        return sign * trial.value
    if last < step:
        is_over = trial.state is TrialState.PRUNED
        return -np.inf if is_over else None
    value = sign * trial.intermediate_values[max(reached)] if reached else -np.inf
    return -np.inf if np.isnan(value) else value


def _trials(study: optuna.Study) -> list[FrozenTrial]:
    """Trials with suggested parameters, without enqueued ones."""
    trials = trials_of(study)
    return [each for each in trials if _FIXED_PARAMS_ATTR not in each.system_attrs]
