"""The private names of Optuna that the tuner uses, in one place.

Optuna may change them in any release: check this module before a new version of Optuna is allowed.
`tests/contract/search/test_optuna_private_names.py` lists for each name what breaks if it is
renamed; `tests/unit/test_layers.py` checks that no other module uses a private name. The exception
is `tuner.store.optuna_tables.statements`: Optuna's tables need SQLAlchemy, which the process that
only suggests parameters does not import.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import Any

from optuna import Study, Trial
from optuna._hypervolume import compute_hypervolume as compute_hypervolume
from optuna._hypervolume.box_decomposition import (
    get_non_dominated_box_bounds as non_dominated_boxes,
)
from optuna._transform import _SearchSpaceTransform as SearchSpaceTransform
from optuna.distributions import BaseDistribution
from optuna.pruners import (
    BasePruner,
    HyperbandPruner,
    PatientPruner,
    PercentilePruner,
    SuccessiveHalvingPruner,
)
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, TPESampler
from optuna.samplers._ga import BaseGASampler as BaseGASampler
from optuna.samplers._grid import GridValueType as GridValueType
from optuna.samplers._tpe import _truncnorm as truncnorm
from optuna.samplers._tpe import sampler as tpe
from optuna.samplers._tpe.sampler import default_gamma as default_gamma
from optuna.samplers._tpe.sampler import (
    default_gamma_multiobjective as default_gamma_multiobjective,
)
from optuna.storages import BaseStorage
from optuna.storages._base import DEFAULT_STUDY_NAME_PREFIX as DEFAULT_STUDY_NAME_PREFIX
from optuna.study._frozen import FrozenStudy as FrozenStudy
from optuna.study._multi_objective import _fast_non_domination_rank as non_domination_rank
from optuna.study._tell import _tell_with_warning as tell_with_warning
from optuna.trial import FrozenTrial, TrialState

__all__ = [
    "DEFAULT_STUDY_NAME_PREFIX",
    "GP_MODULES",
    "BaseGASampler",
    "CmaEsState",
    "FrozenStudy",
    "GridValueType",
    "HalvingSettings",
    "PercentileSettings",
    "SearchSpaceTransform",
    "best_completed",
    "can_hold",
    "cma_es_state",
    "compute_hypervolume",
    "default_gamma",
    "default_gamma_multiobjective",
    "generation_key_of",
    "halving_settings",
    "independent_sampler_of",
    "infeasibility",
    "n_startup_trials_of",
    "non_dominated_boxes",
    "non_domination_rank",
    "percentile_settings",
    "pruned_score",
    "renumber",
    "replace_random_sampler_of",
    "replace_tpe_log_ndtr",
    "storage_of",
    "study_id_of",
    "suggest",
    "tell_with_warning",
    "tpe",
    "tpe_log_ndtr",
    "trial_id_of",
    "trials_of",
    "truncnorm",
    "wrapped_by",
]

#: Modules that Optuna's Gaussian process sampler imports on first use, including torch.
GP_MODULES = ("optuna._gp.acqf", "optuna._gp.gp", "optuna._gp.optim_mixed")


def trial_id_of(trial: FrozenTrial | Trial) -> int:
    """The id of a trial in its storage, which is unique among all studies there."""
    return trial._trial_id


def renumber(trial: FrozenTrial, number: int, trial_id: int) -> None:
    """Sets a trial's number and id, as assigned by its storage."""
    trial.number, trial._trial_id = number, trial_id


def study_id_of(study: Study | FrozenStudy) -> int:
    """The id of a study in its storage."""
    return study._study_id


def storage_of(study: Study) -> BaseStorage:
    """The storage of a study."""
    return study._storage


def trials_of(
    study: Study,
    *,
    states: Container[TrialState] | None = None,
    deepcopy: bool = False,
    use_cache: bool = False,
) -> list[FrozenTrial]:
    """The trials that a sampler may see; not copies, unless `deepcopy` is given.

    Args:
        study: The study, or a view of it.
        states: States of the trials; None for all.
        deepcopy: Whether to copy them.
        use_cache: Whether trials cached by the last read are sufficient.
    """
    return study._get_trials(deepcopy=deepcopy, states=states, use_cache=use_cache)


@dataclass(frozen=True, slots=True, kw_only=True)
class PercentileSettings:
    """Settings of a median or percentile pruner."""

    percentile: float
    n_startup_trials: int
    n_warmup_steps: int
    interval_steps: int
    n_min_trials: int


def percentile_settings(pruner: PercentilePruner) -> PercentileSettings:
    """Reads the settings of a median or percentile pruner."""
    return PercentileSettings(
        percentile=pruner._percentile,
        n_startup_trials=pruner._n_startup_trials,
        n_warmup_steps=pruner._n_warmup_steps,
        interval_steps=pruner._interval_steps,
        n_min_trials=pruner._n_min_trials,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HalvingSettings:
    """Settings of a pruner with rungs.

    Args:
        min_resource: Step of the first rung; None if the pruner finds it from the first trials.
        reduction_factor: One of this many trials passes a rung.
        n_skipped_rungs: Rungs at the beginning without a comparison.
        bootstrap_count: Trials that pass a rung before any is compared there.
    """

    min_resource: int | None
    reduction_factor: int
    n_skipped_rungs: int = 0
    bootstrap_count: int = 0


def halving_settings(pruner: SuccessiveHalvingPruner | HyperbandPruner) -> HalvingSettings:
    """Reads the settings of a pruner with rungs.

    The brackets of Hyperband begin one rung later each: together they have the rungs of the first.
    """
    least = pruner._min_resource
    known = HalvingSettings(
        min_resource=least if isinstance(least, int) else None,
        reduction_factor=pruner._reduction_factor,
    )
    if isinstance(pruner, HyperbandPruner):
        return known
    return replace(
        known,
        n_skipped_rungs=pruner._min_early_stopping_rate,
        bootstrap_count=pruner._bootstrap_count,
    )


def wrapped_by(pruner: PatientPruner) -> BasePruner | None:
    """The pruner inside a patient pruner."""
    return pruner._wrapped_pruner


def n_startup_trials_of(sampler: TPESampler | GPSampler | CmaEsSampler) -> int:
    """Number of random trials of a sampler before it uses its model."""
    return sampler._n_startup_trials


def replace_random_sampler_of(sampler: TPESampler, other: BaseSampler) -> None:
    """Lets TPE take its first trials from another sampler."""
    sampler._random_sampler = other  # type: ignore[assignment]  # Any sampler will do there.


def independent_sampler_of(sampler: GPSampler) -> BaseSampler:
    """The sampler of the parameters that a model leaves out."""
    return sampler._independent_sampler


@dataclass(frozen=True, slots=True, kw_only=True)
class CmaEsState:
    """Attributes of a CMA-ES sampler's state, and its use of pruned trials.

    Args:
        generation_key: Attribute of a trial: its generation.
        optimizer_key: Attribute of a trial: the state of the optimizer.
        learns_from_pruned: Whether it learns from pruned trials.
    """

    generation_key: str
    optimizer_key: str
    learns_from_pruned: bool


def cma_es_state(sampler: CmaEsSampler) -> CmaEsState:
    """Attributes of a CMA-ES sampler's state."""
    return CmaEsState(
        generation_key=sampler._attr_key_generation,
        optimizer_key=sampler._attr_key_optimizer,
        learns_from_pruned=sampler._consider_pruned_trials,
    )


def generation_key_of(sampler: BaseGASampler) -> str:
    """The attribute of a trial with its generation, for a genetic sampler."""
    return sampler._get_generation_key()


def infeasibility(trial: FrozenTrial) -> float:
    """A trial's constraint violation, computed as in TPE; 0 for none."""
    return tpe._get_infeasible_trial_score(trial)


def pruned_score(trial: FrozenTrial, study: Study) -> tuple[float, float]:
    """The order of pruned trials in TPE: the last step, then the value there."""
    return tpe._get_pruned_trial_score(trial, study)


def best_completed(trials: list[FrozenTrial], study: Study, n: int) -> list[FrozenTrial]:
    """The trials that TPE counts as good.

    Args:
        trials: Completed trials.
        study: Their study.
        n: Number of trials to return.
    """
    return tpe._split_complete_trials(trials, study, n)[0]


def tpe_log_ndtr() -> Callable[[Any], Any] | None:
    """TPE's log of the normal distribution function; None if it has none."""
    return vars(truncnorm).get("_log_ndtr")


def replace_tpe_log_ndtr(log_ndtr: Callable[[Any], Any]) -> None:
    """Lets TPE compute the logarithm of the normal distribution function with another function."""
    vars(truncnorm)["_log_ndtr"] = log_ndtr


def suggest(trial: Trial, name: str, distribution: BaseDistribution) -> Any:
    """Suggests a trial's parameter with any distribution.

    Args:
        trial: A running trial.
        name: Name of the parameter.
        distribution: Its distribution.

    Raises:
        ValueError: If the study has the parameter with another kind of distribution.
    """
    return trial._suggest(name, distribution)


def can_hold(distribution: BaseDistribution, value: object) -> bool:
    """Whether a distribution can give a value.

    A number between two steps counts as inside: Optuna compares with the range alone.
    """
    try:
        return distribution._contains(distribution.to_internal_repr(value))
    except (ValueError, TypeError):
        return False
