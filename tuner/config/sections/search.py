"""`sampler` and `pruner`: how a study searches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import Field, model_validator

from tuner.config import rules
from tuner.config.mistakes import refuse
from tuner.config.model import Model

#: As the name of a sampler or a pruner: the tuner picks one.
AUTO = "auto"


class _NamedConfig(Model):
    """A class of Optuna, of the tuner or of a plug-in by name, with its keyword arguments."""

    name: str
    arguments: Mapping[str, object] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: object) -> object:
        return rules.read_named(value, default_name=AUTO)


class SamplerConfig(_NamedConfig):
    """Which sampler chooses the configurations."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(rules.seed_mistakes(self.arguments.get("seed")))
        return self

    @property
    def seed(self) -> int | None:
        """The study's seed, if the file has one."""
        seed = self.arguments.get("seed")
        return seed if isinstance(seed, int) else None


class PrunerConfig(_NamedConfig):
    """Which pruner stops weak trials."""
