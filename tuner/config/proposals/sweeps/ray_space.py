"""Finds the search space of a program of Ray Tune in its text, such as `tune.uniform(0, 1)`.

https://docs.ray.io/en/latest/tune/api/search_space.html has the functions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

_FLOATS = ("uniform", "loguniform", "quniform", "qloguniform")
_INTS = ("randint", "lograndint", "qrandint", "qlograndint")
_CHOICES = ("choice", "grid_search")


def ray_space(tree: ast.Module) -> dict[str, object]:
    """Parameters in a form of `search_space`; those that are functions are left out.

    Args:
        tree: The program, which is not run.
    """
    return {
        name: parameter
        for node in ast.walk(tree)
        for name, value in _items(node)
        if (parameter := _parameter(value)) is not None
    }


def _items(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                yield str(key.value), value


def _parameter(node: ast.expr) -> object:
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    module, _, name = ast.unparse(node.func).rpartition(".")
    try:
        given = [ast.literal_eval(each) for each in node.args]
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    if module.rpartition(".")[2] != "tune":
        return None
    if name in _CHOICES and len(given) == 1:
        return given[0]
    if name in (*_FLOATS, *_INTS):
        return _range(name, given)
    return None


def _range(name: str, given: list[object]) -> Mapping[str, object] | None:
    n_expected = 3 if name.startswith("q") else 2
    numbers = [each for each in given if isinstance(each, int | float)]
    if len(numbers) != n_expected or len(given) != n_expected:
        return None
    low, high, *steps = numbers
    is_int = name in _INTS
    # The upper end of randint is not part of it.
    high = high - 1 if is_int and not steps else high
    log = {"log": True} if "log" in name else {}
    step = {"step": steps[0]} if steps and not log else {}
    kind = int if is_int else float
    return {"type": kind.__name__, "low": kind(low), "high": kind(high), **log, **step}
