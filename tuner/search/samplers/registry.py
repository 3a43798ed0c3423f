"""Samplers by name: the tuner's `curve_gp`, and Optuna's `tpe`, `random`, `gp`, `grid` ...

For `grid` and `qmc` the tuner has versions that can be continued. Other packages register theirs
under the entry point group `tuner.samplers`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import optuna
from optuna.samplers import BaseSampler, TPESampler, nsgaii

from tuner.config import SamplerConfig
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
from tuner.search.samplers import grid_values, tpe_speedup
from tuner.search.samplers.bounded import BoundedSampler, bounded
from tuner.search.samplers.curve_gp.sampler import CurveGPSampler
from tuner.search.samplers.resumable import GridSampler, QMCSampler
from tuner.search_spaces import AnySpace, SearchSpace

_OPTUNAS: Catalogue[BaseSampler] = catalogue(
    optuna.samplers, BaseSampler, aliases={"cmaes": "cma_es"}
)
_OURS: dict[str, type[BaseSampler]] = {
    "curve_gp": CurveGPSampler,
    "grid": GridSampler,
    "qmc": QMCSampler,
}
SAMPLERS: Catalogue[BaseSampler] = replace(
    _OPTUNAS, classes={**_OPTUNAS.classes, **_OURS}, group="tuner.samplers"
)
_CROSSOVERS: Catalogue[nsgaii.BaseCrossover] = catalogue(nsgaii, nsgaii.BaseCrossover)
_MUTATIONS: Catalogue[nsgaii.BaseMutation] = catalogue(nsgaii, nsgaii.BaseMutation)

_PACKAGES = {"cma_es": ("cmaes",), "gp": ("torch", "scipy"), "qmc": ("scipy",)}
#: Samplers that follow one sequence over all starts and dispatchers.
_RESUMABLE = frozenset({"grid", "qmc"})
_ONE_OBJECTIVE_ONLY = frozenset({"cma_es"})


def build_sampler(
    config: SamplerConfig,
    space: AnySpace | None,
    *,
    seed: int,
    sequence_seed: int | None = None,
    n_objectives: int = 1,
    file: str | None = None,
) -> BaseSampler:
    """Builds the sampler of a study, with a bounded number of trials in its view.

    Args:
        config: Its name and arguments.
        space: The study's space, from which `grid` takes its values.
        seed: Seed of random numbers, from the file or drawn; overrides the one in `config`. Later
            starts and parallel dispatchers have other seeds than the first.
        sequence_seed: The study's own seed, the same at every start, for `grid` and `qmc`; None for
            `seed`.
        n_objectives: Number of values per trial.
        file: The study file as the user named it.

    Raises:
        ConfigError: If the name, an argument or a value is wrong, if a package is missing, or if
            the sampler does not support this space or number of objectives.
    """
    place = Place(file=file, key="sampler")
    name = SAMPLERS.canonical(config.name, place)
    if n_objectives > 1 and name in _ONE_OBJECTIVE_ONLY:
        problem = (
            f"is '{config.name}', which has one objective only; this study has {n_objectives}."
        )
        raise place.error(f"{problem} Use curve_gp, tpe, nsgaii, nsgaiii or gp.")
    arguments = {**config.arguments, "seed": seed}
    declared = space if isinstance(space, SearchSpace) else None
    if name == "grid":
        given = arguments.get("search_space")
        arguments["search_space"] = grid_values.values(given, declared, place.below("search_space"))
    if name == "brute_force" and declared is not None:
        grid_values.refuse_endless(declared, place)
    seeds = _Seeds(draws=seed, sequence=seed if sequence_seed is None else sequence_seed)
    sampler = _make(name, config.name, arguments, seeds=seeds, place=place)
    inner = sampler.inner if isinstance(sampler, BoundedSampler) else sampler
    if isinstance(inner, CurveGPSampler) and declared is not None:
        inner.declare(declared)
    return sampler


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seeds:
    draws: int
    #: Seed of a sequence that several starts share.
    sequence: int


def _make(
    name: str, shown: str, arguments: Mapping[str, object], *, seeds: _Seeds, place: Place
) -> BaseSampler:
    if name in _RESUMABLE:
        arguments = {**arguments, "seed": seeds.sequence}
    if name == "qmc":
        # What is not of the sequence must not be drawn again by a later start.
        arguments = {"independent_sampler": "random", **arguments}
    cls = SAMPLERS.load(name, place)
    require_packages(shown, _PACKAGES.get(name, ()), place)
    if not accepts(cls, "seed"):
        # `partial_fixed` has no chance of its own: its base sampler gets the seed.
        arguments = {key: value for key, value in arguments.items() if key != "seed"}
    parts: dict[str, Part] = {
        "BaseSampler": functools.partial(_nested_sampler, seeds=seeds),
        "BaseCrossover": _crossover,
        "BaseMutation": _mutation,
    }
    sampler = make(cls, arguments, name=shown, place=place, parts=parts)
    if isinstance(sampler, TPESampler):
        tpe_speedup.use_in_optuna()
    return bounded(sampler, seed=seeds.draws)


def _nested_sampler(value: object, place: Place, *, seeds: _Seeds) -> BaseSampler:
    shown, arguments = split_name(value, place)
    name = SAMPLERS.canonical(shown, place)
    return _make(name, str(shown), {"seed": seeds.draws, **arguments}, seeds=seeds, place=place)


def _crossover(value: object, place: Place) -> nsgaii.BaseCrossover:
    shown, arguments = split_name(value, place)
    cls = _CROSSOVERS.classes[_CROSSOVERS.canonical(shown, place)]
    return make(cls, arguments, name=str(shown), place=place, parts={})


def _mutation(value: object, place: Place) -> nsgaii.BaseMutation:
    shown, arguments = split_name(value, place)
    cls = _MUTATIONS.classes[_MUTATIONS.canonical(shown, place)]
    return make(cls, arguments, name=str(shown), place=place, parts={})
