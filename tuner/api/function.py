"""How trials import a function: from its module, or pickled."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType

from tuner.api.arguments import CALL
from tuner.errors import ConfigError
from tuner.launch.stored_function import StoredFunction, pickled

_MAIN = "__main__"


def check_signature(function: Callable[..., object], key: str) -> None:
    """Checks a function's signature.

    Raises:
        ConfigError: If the function can't be called with the trial alone.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # A built-in function that hides its signature.
    try:
        signature.bind(object())
    except TypeError as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise ConfigError(
            f"is {name}{signature}, but must be callable with one argument, the trial. Take the "
            "parameters from it: trial.params['lr'].",
            file=CALL,
            key=key,
        ) from error


def name_or_pickle(function: Callable[..., object], key: str) -> str | StoredFunction:
    """`module:function` if other processes can import it, else the function itself, pickled.

    Args:
        function: The function of a trial.
        key: The argument, for messages.

    Raises:
        ConfigError: If it can't be pickled.
    """
    name = _importable_name(function)
    if name is not None:
        return name
    try:
        with _by_value(function):
            return pickled(function, _source_of(function))
    except Exception as error:  # the edge: objects of the user refuse in their own ways
        raise ConfigError(
            f"can't be handed to other processes: {type(error).__name__}: {error}. Create what it "
            "uses (connections, locks, open files) inside of the function, or put the function "
            "into a module and import it.",
            file=CALL,
            key=key,
        ) from error


def _importable_name(function: Callable[..., object]) -> str | None:
    if not isinstance(function, FunctionType) or function.__module__ == _MAIN:
        return None
    found: object = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not function or not _can_be_found(function.__module__):
        return None
    return f"{function.__module__}:{function.__qualname__}"


def _can_be_found(module: str) -> bool:
    """Whether another process with the same path can import the module."""
    top = module.partition(".")[0]
    try:
        finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
        if all(finder.find_spec(top, None) is None for finder in finders):
            return False
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


@contextmanager
def _by_value(function: Callable[..., object]) -> Iterator[None]:
    """Lets a module that no other process can import be pickled along with the function."""
    import cloudpickle

    module = inspect.getmodule(function)
    is_other = isinstance(module, ModuleType) and module.__name__ != _MAIN
    if not is_other or module is None or _can_be_found(module.__name__):
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _source_of(function: Callable[..., object]) -> str:
    """The function's source; empty if there is none (an interactive interpreter)."""
    written = function if isinstance(function, FunctionType) else type(function)
    try:
        return inspect.getsource(written)
    except (OSError, TypeError):
        return ""
