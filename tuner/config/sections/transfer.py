"""`transfer`: earlier studies whose best configurations are tried first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, WithJsonSchema

from tuner.config.mistakes import Mistake
from tuner.config.notation.fields import one_or_several
from tuner.config.sections.prior import sampler_mistakes


def read_transfer(value: object) -> object:
    """One name is a list of one."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise ValueError(
            "must name studies of the same database, such as digits-small or [digits-1, digits-2]."
        )
    return tuple(dict.fromkeys(names))


Transfer: TypeAlias = Annotated[
    tuple[str, ...], BeforeValidator(read_transfer), WithJsonSchema(one_or_several("studies"))
]


def transfer_mistakes(names: Sequence[str], study: str, sampler: str) -> Iterator[Mistake]:
    """Whether these can be earlier studies of this one is seen in the database."""
    if names:
        yield from sampler_mistakes("transfer", sampler)
    if study in names:
        problem = f"names {study!r}, which is this study itself. Name an earlier one."
        yield Mistake(key="transfer", problem=problem)
