"""Search spaces as Python values: a study file's parameters as Optuna distributions."""

from tuner.search_spaces.compare import differences, from_json, to_json
from tuner.search_spaces.load import load_ready_made, load_space, ready_made
from tuner.search_spaces.schema import parse_space
from tuner.search_spaces.space import (
    AnySpace,
    DefineByRunSpace,
    Parameter,
    ParamValue,
    Scalar,
    SearchSpace,
    SpaceError,
    identity,
)

__all__ = [
    "AnySpace",
    "DefineByRunSpace",
    "ParamValue",
    "Parameter",
    "Scalar",
    "SearchSpace",
    "SpaceError",
    "differences",
    "from_json",
    "identity",
    "load_ready_made",
    "load_space",
    "parse_space",
    "ready_made",
    "to_json",
]
