"""Base of all mappings of a study file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """One mapping: unknown keys are mistakes, and a checked mapping is immutable."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    @classmethod
    def yaml_keys(cls) -> tuple[str, ...]:
        """The keys that the study file may have here."""
        return tuple(field.alias or name for name, field in cls.model_fields.items())
