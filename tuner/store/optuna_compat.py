"""The private names of Optuna that the tuner uses, in one place.

Optuna may change them in any release, so this is what to look at before a new version of Optuna is
allowed. A test makes sure that no other module imports a private name, or reads the id of a trial
or study or the storage of a study by itself. The exception is
`tuner.store.optuna_tables.statements`: Optuna's tables need SQLAlchemy, which the process
that only suggests parameters does without.
"""

from __future__ import annotations

from collections.abc import Container

from optuna import Study, Trial
from optuna._hypervolume import compute_hypervolume as compute_hypervolume
from optuna._transform import _SearchSpaceTransform as SearchSpaceTransform
from optuna.distributions import BaseDistribution
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
    "FrozenStudy",
    "GridValueType",
    "SearchSpaceTransform",
    "can_hold",
    "compute_hypervolume",
    "default_gamma",
    "default_gamma_multiobjective",
    "non_domination_rank",
    "renumber",
    "storage_of",
    "study_id_of",
    "tell_with_warning",
    "tpe",
    "trial_id_of",
    "trials_of",
    "truncnorm",
]

#: What Optuna's sampler of Gaussian processes imports once it is used, torch among it.
GP_MODULES = ("optuna._gp.acqf", "optuna._gp.gp", "optuna._gp.optim_mixed")


def trial_id_of(trial: FrozenTrial | Trial) -> int:
    """The id of a trial in its storage, which is unique among all studies there."""
    return trial._trial_id


def renumber(trial: FrozenTrial, number: int, trial_id: int) -> None:
    """Gives a trial the number and the id that its storage has chosen."""
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
        states: The states of trials to give; all where it is None.
        deepcopy: Whether to copy them.
        use_cache: Whether those that were read last will do.
    """
    return study._get_trials(deepcopy=deepcopy, states=states, use_cache=use_cache)


def can_hold(distribution: BaseDistribution, value: object) -> bool:
    """Whether a distribution can give a value.

    A number between two steps counts as inside: Optuna compares with the range alone.
    """
    try:
        return distribution._contains(distribution.to_internal_repr(value))
    except (ValueError, TypeError):
        return False
