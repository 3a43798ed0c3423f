"""Default sampler and pruner for studies that name none."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler

from tuner.config import PrunerConfig, SamplerConfig, StudyConfig
from tuner.config.sections.search import AUTO
from tuner.search.by_name import Place
from tuner.search.population.pbt import PbtPruner
from tuner.search.pruners.registry import build_pruner, is_population_based
from tuner.search.samplers.covering import cover_beginning
from tuner.search.samplers.prior import PriorSampler
from tuner.search.samplers.registry import build_sampler
from tuner.search_spaces import ParamValue, SearchSpace
from tuner.search_spaces.space import nearest

#: With more trials `curve_gp` was not measured. Up to there its lead over TPE does not shrink, and
#: a suggestion takes the dispatcher no longer.
_MANY_TRIALS = 10_000
#: Several objectives: a front of thousands of trials is long, and its hypervolume is exact.
_MANY_OF_SEVERAL = 2000
#: With more objectives, the hypervolume improvement of a suggestion cannot be computed exactly.
_MOST_OBJECTIVES = 4
#: After the first step the ranking of trials means little and is often wrong.
_FIRST_RUNG = 2
#: A cost is usually known at once; and a trial that pauses too early is not lost.
_FIRST_OF_SEVERAL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A sampler and a pruner, with the reason for each."""

    sampler: SamplerConfig
    sampler_reason: str
    pruner: PrunerConfig
    pruner_reason: str


_NAMED = "named in the study file"


def choose(config: StudyConfig) -> Choice:
    """Chooses the sampler and pruner that the study file leaves open.

    Raises:
        ConfigError: If the file gives arguments without a name.
    """
    pruner, pruner_reason = config.pruner, _NAMED
    if pruner is None or pruner.name == AUTO:
        _refuse_arguments(pruner.arguments.keys() if pruner else (), "pruner", config)
        pruner, pruner_reason = picked_pruner(len(config.objectives))
    sampler, sampler_reason = config.sampler, _NAMED
    if sampler.name == AUTO:
        _refuse_arguments(sampler.arguments.keys() - {"seed"}, "sampler", config)
        name, sampler_reason = _sampler(config, pruner)
        sampler = SamplerConfig.model_validate({"name": name, **sampler.arguments})
    return Choice(
        sampler=sampler,
        sampler_reason=sampler_reason,
        pruner=pruner,
        pruner_reason=pruner_reason,
    )


def sampler_of(
    config: StudyConfig,
    *,
    seed: int,
    sequence_seed: int | None = None,
    transferred: Sequence[Mapping[str, ParamValue]] = (),
) -> BaseSampler:
    """The study's sampler, named or default, with the file's prior.

    Args:
        config: The study.
        seed: From the file or drawn; overrides the one in the file.
        sequence_seed: The same at every start; None for `seed`.
        transferred: The best configurations of earlier studies, converted to this study's space.

    Raises:
        ConfigError: If the sampler cannot be built, or cannot search this space.
    """
    chosen = choose(config).sampler
    sampler = build_sampler(
        chosen,
        config.search_space,
        seed=seed,
        sequence_seed=sequence_seed,
        n_objectives=len(config.objectives),
        file=config.file,
    )
    if config.sampler.name == AUTO or chosen.name == "curve_gp":
        sequence = seed if sequence_seed is None else sequence_seed
        sampler = cover_beginning(sampler, config.search_space, seed=sequence)
    believed = [*([config.prior] if config.prior else []), *transferred]
    return PriorSampler(sampler, *believed, seed=seed) if believed else sampler


def pruner_of(config: StudyConfig) -> BasePruner:
    """The study's pruner, named or picked.

    Raises:
        ConfigError: If the pruner cannot be made.
    """
    pruner = build_pruner(
        choose(config).pruner,
        len(config.objectives),
        seed=config.sampler.seed or 0,
        file=config.file,
    )
    if isinstance(pruner, PbtPruner):
        _check_population(pruner, config)
    return pruner


def _check_population(pruner: PbtPruner, config: StudyConfig) -> None:
    """Checks the settings of a population.

    Raises:
        ConfigError: If `keep` names an unknown parameter, or `confirm` is set, which is not
            possible here.
    """
    if isinstance(config.search_space, SearchSpace):
        known = [each.name for each in config.search_space.parameters]
        for name in sorted(pruner.keep.difference(known)):
            meant = nearest(name, known)
            hint = f" Did you mean {meant!r}?" if meant else ""
            problem = f"has {name!r}, but the parameters that are searched are {', '.join(known)}."
            raise Place(file=config.file, key="pruner").below("keep").error(f"{problem}{hint}")
    if config.confirm is not None:
        raise Place(file=config.file, key="confirm").error(
            "runs the leaders again with their parameters, and with pruner pbt these are only "
            "their last ones. Remove it, and train again with `tuner schedule STUDY -o FILE`."
        )


def _sampler(config: StudyConfig, pruner: PrunerConfig) -> tuple[str, str]:
    n_trials = config.budget.trials
    if is_population_based(pruner):
        return "random", "it draws the first population alone; all others are copies of members"
    if len(config.objectives) > _MOST_OBJECTIVES:
        return "tpe", f"there are more than {_MOST_OBJECTIVES} objectives"
    many = _MANY_OF_SEVERAL if len(config.objectives) > 1 else _MANY_TRIALS
    if n_trials is not None and n_trials > many:
        return "tpe", f"there are more than {many} trials"
    return "curve_gp", "it learns from what trials report on their way, however far they come"


def picked_pruner(n_objectives: int) -> tuple[PrunerConfig, str]:
    """The default pruner for a study file that names none, with the reason for the user."""
    if n_objectives > 1:
        first = _FIRST_OF_SEVERAL
        asha = {"name": "asha", "mode": "promote", "min_resource": first}
        reason = (
            f"where trials report all objectives, they pause at steps {first}, {first * 3}, "
            f"{first * 9} ..., and the best third by Pareto rank continues"
        )
        return PrunerConfig.model_validate(asha), reason
    asha = {"name": "asha", "mode": "stop", "min_resource": _FIRST_RUNG, "check_order": True}
    reason = (
        f"two of three trials end at steps {_FIRST_RUNG}, {_FIRST_RUNG * 3} ..., the others "
        "continue to the end; steps whose order of trials does not last are left out"
    )
    return PrunerConfig.model_validate(asha), reason


def _refuse_arguments(names: Collection[str], key: str, config: StudyConfig) -> None:
    if names:
        given = min(names)
        example = f"Name one: {_EXAMPLES[key]}."
        hint = f"Did you mean 'name'? {example}" if nearest(given, ["name"]) else example
        place = Place(file=config.file, key=key).below(given)
        raise place.error(f"is given, but no {key} that takes it. {hint}")


_EXAMPLES = {"sampler": "{name: tpe}", "pruner": "{name: asha}"}
