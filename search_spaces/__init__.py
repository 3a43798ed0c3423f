"""Search spaces as Python values: a study file's parameters as Optuna distributions."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuner.search_spaces.compare import differences, from_json, to_json
    from tuner.search_spaces.load import load_ready_made, load_space, ready_made
    from tuner.search_spaces.schema import parse_space
    from tuner.search_spaces.space import (
        AnySpace,
        DefineByRunSpace,
        Parameter,
        SearchSpace,
        SpaceError,
        identity,
    )
    from tuner.search_spaces.values import ParamValue, Scalar

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

_MODULES = ("values", "space", "compare", "load", "schema")

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Imports a name on first use: the process of a command needs values, and no Optuna."""
        if name in __all__:
            for room in _MODULES:
                if hasattr(module := import_module(f"{__name__}.{room}"), name):
                    return getattr(module, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
