"""Parts of a script other than its options: constants and endless loops."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

#: Name, line and value.
Constant = tuple[str, int, object]


def assigned_constants(tree: ast.Module) -> Iterator[Constant]:
    """Numbers and texts that are assigned to a name: `lr = 0.1`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            target = node.targets[0]
            if isinstance(target, ast.Name):
                yield target.id, node.lineno, node.value.value


def constants_of(tree: ast.Module) -> Iterator[Constant]:
    """Constants, including those in calls and dicts: `Adam(parameters, lr=0.1)`, `{"lr": 0.1}`."""
    yield from assigned_constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and not ast.unparse(node.func).endswith("add_argument"):
            for word in node.keywords:
                if word.arg and isinstance(word.value, ast.Constant):
                    yield word.arg, word.value.lineno, word.value.value
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                    yield str(key.value), value.lineno, value.value


def imported_files(tree: ast.Module, folder: Path) -> Iterator[Path]:
    """Files next to a script that it imports, such as `options.py`."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
            names += [f"{node.module}.{each.name}" for each in node.names if node.module]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        for name in filter(None, names):
            path = folder.joinpath(*name.split(".")).with_suffix(".py")
            if path.is_file():
                yield path


def endless_loop(tree: ast.Module, line: int) -> int:
    """The line of the endless loop around a line; 0 if there is none.

    Args:
        tree: The script.
        line: The line that prints its result.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.While) and _holds(node, line) and _is_endless(node):
            return node.lineno
    return 0


def _holds(node: ast.For | ast.While, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _is_endless(node: ast.For | ast.While) -> bool:
    if isinstance(node, ast.For):
        # With a break such a loop ends where the training succeeds.
        return isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func).endswith("count")
    is_true = isinstance(node.test, ast.Constant) and bool(node.test.value)
    ends = ast.Break | ast.Return | ast.Raise
    return is_true and not any(isinstance(each, ends) for each in ast.walk(node))
