"""`trial.profile`: which trial the torch profiler records."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from tuner.config.model import Model

BEST: Final = "best"


def read_trial(value: object) -> object:
    """Reads `best` or the number of a trial.

    Raises:
        ValueError: If it is neither.
    """
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if value != BEST and not is_number:
        raise ValueError(f"is {value!r}, but must be {BEST} or the number of a trial.")
    return value


def read_steps(value: object) -> object:
    """Reads the first and the last step.

    Raises:
        ValueError: If they are not two whole numbers in their order.
    """
    match value:
        case [int(first), int(last)] if type(first) is int and type(last) is int and first >= 0:
            if first > last:
                order = "the first step must not be after the last."
                raise ValueError(f"is [{first}, {last}], but {order}")
            return first, last
    raise ValueError("must be the first and the last step, such as [10, 20].")


_TRIAL = {
    "title": "best or a number",
    "anyOf": [{"enum": [BEST]}, {"type": "integer", "minimum": 0}],
}
_STEPS = {
    "title": "list of two steps",
    "type": "array",
    "items": {"type": "integer", "minimum": 0},
    "minItems": 2,
    "maxItems": 2,
}
ProfiledTrial: TypeAlias = Annotated[
    int | Literal["best"], BeforeValidator(read_trial), WithJsonSchema(_TRIAL)
]
Steps: TypeAlias = Annotated[tuple[int, int], BeforeValidator(read_steps), WithJsonSchema(_STEPS)]


class ProfileConfig(Model):
    """Which trial is recorded, and over which steps."""

    trial: ProfiledTrial = Field(
        default=BEST,
        description="Number of the trial that is recorded. `best` records every trial and keeps "
        "the trace of the best one.",
        examples=["best", 0],
    )
    steps: Steps | None = Field(
        default=None,
        description="First and last step that are recorded, as the program reports them. Default: "
        "the first block of the program in `with trial.profile():`.",
        examples=[[10, 20]],
    )
