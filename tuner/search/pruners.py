"""Pruners by name: `asha`, which is ours, and Optuna's: `hyperband`, `median`, `none` ..."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import optuna
from optuna.pruners import BasePruner, NopPruner

from tuner.config import PrunerConfig
from tuner.search.asha import AshaPruner
from tuner.search.named import Catalogue, Place, catalogue, make, require_packages, split_name

_OPTUNAS: Catalogue[BasePruner] = catalogue(optuna.pruners, BasePruner, aliases={"none": "nop"})
PRUNERS: Catalogue[BasePruner] = replace(_OPTUNAS, classes={**_OPTUNAS.classes, "asha": AshaPruner})
_PACKAGES = {"wilcoxon": ("scipy",)}


def build_pruner(config: PrunerConfig, n_objectives: int, *, file: str | None = None) -> BasePruner:
    """Makes the pruner of a study.

    Args:
        config: Its name and arguments.
        n_objectives: How many values a trial has.
        file: The study file as the user named it.

    Raises:
        ConfigError: If the name, an argument or a value is wrong, if a package is missing, or
            if there are several objectives.
    """
    place = Place(file=file, key="pruner")
    pruner = _make(config.name, config.arguments, place)
    if n_objectives > 1 and not isinstance(pruner, NopPruner):
        raise place.error(
            f"is '{config.name}', but Optuna's pruners compare one value and this study has "
            f"{n_objectives} objectives. Remove pruner, or use {{name: none}}."
        )
    return pruner


def _make(shown: object, arguments: Mapping[str, object], place: Place) -> BasePruner:
    name = PRUNERS.canonical(shown, place)
    require_packages(str(shown), _PACKAGES.get(name, ()), place)
    parts = {"BasePruner": _nested_pruner}
    return make(PRUNERS.classes[name], arguments, name=str(shown), place=place, parts=parts)


def _nested_pruner(value: object, place: Place) -> BasePruner:
    shown, arguments = split_name(value, place)
    return _make(shown, arguments, place)
