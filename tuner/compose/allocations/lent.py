"""The allocation in which a start runs, found by its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.config import StudyConfig
from tuner.config.sections.engine import EngineConfig, EngineName
from tuner.dispatch.terms import AllocationTerms
from tuner.domain.allocation import OwnAllocation
from tuner.engines.port import Engine, notice_s
from tuner.engines.registry import open_engine
from tuner.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """An allocation, the terms of its use, and its engine."""

    allocation: OwnAllocation
    terms: AllocationTerms
    engine: Engine
    settings: EngineConfig
    #: Whether this dispatcher may ask for more nodes.
    adapts: bool = False


def engine_config(config: StudyConfig, name: str | None) -> EngineConfig:
    """The `engine` section of a study file, with the engine of the command line.

    Raises:
        ConfigError: If there is none, or none with that name.
    """
    names = [each.value for each in EngineName]
    if name is not None and name not in names:
        problem = f"is {name!r}, but must be {', '.join(names[:-1])} or {names[-1]}."
        raise ConfigError(problem, key="The engine")
    if name is None and config.engine is None:
        problem = (
            "has no engine. Add one, such as engine: {name: slurm, nodes: 2, devices: 4}, or name "
            "it with --on."
        )
        raise ConfigError(problem, file=config.file)
    own = config.engine or EngineConfig(name=EngineName(name))
    return own if name is None else own.model_copy(update={"name": EngineName(name)})


def find_lent(
    config: StudyConfig, name: str, environ: Mapping[str, str], *, adapts: bool = False
) -> Lent:
    """The allocation of an engine in which this process runs.

    Raises:
        TunerError: If it does not run in one.
    """
    settings = engine_config(config, name)
    engine = open_engine(settings)
    own = engine.own_allocation(environ)
    if own is None:
        problem = (
            f"is {name}, but this process runs in no allocation of {name}. Leave it out, or use "
            f"tuner submit {config.file} --on {name}"
        )
        raise ConfigError(problem, key="--engine")
    terms = AllocationTerms(
        place=f"{own.engine} {own.name}",
        idle_s=settings.idle_s,
        notice_s=notice_s(config.trial.stop_grace_s),
        deadline=own.deadline,
    )
    return Lent(allocation=own, terms=terms, engine=engine, settings=settings, adapts=adapts)
