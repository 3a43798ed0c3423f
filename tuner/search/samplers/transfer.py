"""The best configurations of earlier studies, as the space of a new one has them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from optuna.distributions import CategoricalDistribution

from tuner.search_spaces import AnySpace, Parameter, ParamValue, SearchSpace
from tuner.search_spaces.space import is_number, is_one_of

#: Attribute of the study.
TRANSFER_ATTR = "tuner:transfer"
#: So many configurations are taken over from all earlier studies together.
N_TRANSFERRED = 5

Configuration = Mapping[str, ParamValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transferred:
    """Configurations from earlier studies with which a study begins."""

    #: The earlier studies.
    studies: Sequence[str]
    #: The best first, without constants and without parameters that the space does not have.
    configurations: Sequence[Configuration]
    #: Messages to show about values that were changed or dropped.
    notices: Sequence[str] = ()

    def as_data(self) -> dict[str, object]:
        """For the database, and for `from_data`."""
        return {
            "studies": list(self.studies),
            "configurations": [dict(each) for each in self.configurations],
            "notices": list(self.notices),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Sequence[object]]) -> Transferred:
        """Restores the result of `as_data`."""
        return cls(**data)  # type: ignore[arg-type]  # it is JSON of ours


def transferred(
    earlier: Mapping[str, Sequence[Configuration]], space: AnySpace | None
) -> Transferred:
    """Takes the best configuration of each study in turn, until there are enough.

    Args:
        earlier: Configurations by study name, constants included, the best first.
        space: The new study's space. If the program defines its own space, everything is kept.
    """
    by_rank = zip_longest(*([(name, each) for each in found] for name, found in earlier.items()))
    notices: dict[str, None] = {}
    taken: list[Configuration] = []
    for name, params in (each for each in chain.from_iterable(by_rank) if each is not None):
        fitting = dict(params)
        if isinstance(space, SearchSpace):
            fitting, said = _fitted(params, space)
            notices |= dict.fromkeys(f"{each} (of {name})" for each in said)
        if fitting and fitting not in taken:
            taken.append(fitting)
        if len(taken) == N_TRANSFERRED:
            break
    return Transferred(studies=tuple(earlier), configurations=taken, notices=tuple(notices))


def _fitted(params: Configuration, space: SearchSpace) -> tuple[dict[str, ParamValue], list[str]]:
    values: dict[str, ParamValue] = {}
    notices = [
        f"{name} is not searched here and is left out"
        for name in params
        if name not in {each.name for each in space.parameters} and name not in space.constants
    ]
    for parameter in space.parameters:
        found = params.get(parameter.name)
        if found is None:
            # One with a condition may be absent for good reason.
            if not parameter.when:
                notices.append(f"{parameter.name} is new and is drawn at random")
            continue
        value = _nearest(found, parameter)
        if value is None:
            notices.append(f"{parameter.name} cannot be {found!r} here and is drawn at random")
            continue
        if value != found:
            notices.append(f"{parameter.name} {found!r} becomes {value!r}, which is in its range")
        values[parameter.name] = value
    return values, notices


def _nearest(value: ParamValue, parameter: Parameter) -> ParamValue | None:
    """The parameter's value that is nearest to another value; None if there is none."""
    distribution = parameter.distribution
    if isinstance(distribution, CategoricalDistribution):
        return value if is_one_of(value, distribution.choices) else None
    if not is_number(value):
        return None
    clipped = min(max(float(value), distribution.low), distribution.high)
    if distribution.step is not None:
        n_steps = round((clipped - distribution.low) / distribution.step)
        clipped = distribution.low + n_steps * distribution.step
    found: ParamValue = distribution.to_external_repr(clipped)
    return found
