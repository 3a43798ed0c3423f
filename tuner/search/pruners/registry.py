"""Pruners by name: the tuner's (`asha`, `freeze_thaw`, `hyperband`, `pbt`) and Optuna's.

Other packages add theirs under the entry point group `tuner.schedulers`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

import optuna
from optuna.pruners import BasePruner, NopPruner

from tuner.config import PrunerConfig
from tuner.search.by_name import (
    Catalogue,
    Part,
    Place,
    accepts,
    catalogue,
    make,
    require_packages,
    split_name,
)
from tuner.search.population.pbt import PbtPruner
from tuner.search.pruners.asha import AshaPruner
from tuner.search.pruners.freeze_thaw import FreezeThawPruner
from tuner.search.pruners.hyperband import AsyncHyperbandPruner
from tuner.search.scheduler import BringsScheduler

_OPTUNAS: Catalogue[BasePruner] = catalogue(optuna.pruners, BasePruner, aliases={"none": "nop"})
_OURS: Mapping[str, type[BasePruner]] = {
    "asha": AshaPruner,
    "freeze_thaw": FreezeThawPruner,
    "hyperband": AsyncHyperbandPruner,
    "pbt": PbtPruner,
}
#: Optuna's own of a name that is ours.
_RENAMED = {f"optuna_{name}": each for name, each in _OPTUNAS.classes.items() if name in _OURS}
PRUNERS: Catalogue[BasePruner] = replace(
    _OPTUNAS, classes={**_OPTUNAS.classes, **_OURS, **_RENAMED}, group="tuner.schedulers"
)
_FOR_SEVERAL_OBJECTIVES = (NopPruner, AshaPruner, AsyncHyperbandPruner)
#: Names of removed pruners. Studies that used one can still be displayed.
_REMOVED = ("pasha", "PashaPruner")
_PACKAGES = {"wilcoxon": ("scipy",)}


def build_pruner(
    config: PrunerConfig, n_objectives: int, *, seed: int = 0, file: str | None = None
) -> BasePruner:
    """Makes the pruner of a study.

    Args:
        config: Its name and arguments.
        n_objectives: Number of values per trial.
        seed: For a random pruner without a seed of its own.
        file: The study file as the user named it.

    Raises:
        ConfigError: If the name, an argument or a value is wrong, if the pruner was removed, if a
            package is missing, or if there are several objectives.
    """
    place = Place(file=file, key="pruner")
    pruner = _make(config.name, config.arguments, place, seed=seed)
    takes_several = type(pruner) in _FOR_SEVERAL_OBJECTIVES or isinstance(pruner, BringsScheduler)
    if n_objectives > 1 and not takes_several:
        raise place.error(
            f"is '{config.name}', which compares one value, and this study has {n_objectives} "
            "objectives. Use {name: asha} or {name: hyperband}, which compare by Pareto rank, or "
            "remove pruner."
        )
    return pruner


def is_population_based(config: PrunerConfig) -> bool:
    """Whether a pruner replaces members of a population; False for unknown names."""
    return config.name in ("pbt", PbtPruner.__name__)


def _make(shown: object, arguments: Mapping[str, object], place: Place, *, seed: int) -> BasePruner:
    if shown in _REMOVED:
        raise place.below("name").error(
            f"is {shown!r}, a pruner that was removed. Use asha, or auto for what suits the study; "
            "a study that ran with it continues with either."
        )
    name = PRUNERS.canonical(shown, place)
    require_packages(str(shown), _PACKAGES.get(name, ()), place)
    cls = PRUNERS.load(name, place)
    if accepts(cls, "seed"):
        arguments = {"seed": seed, **arguments}
    parts: dict[str, Part] = {"BasePruner": functools.partial(_nested_pruner, seed=seed)}
    return make(cls, arguments, name=str(shown), place=place, parts=parts)


def _nested_pruner(value: object, place: Place, *, seed: int) -> BasePruner:
    shown, arguments = split_name(value, place)
    return _make(shown, arguments, place, seed=seed)
