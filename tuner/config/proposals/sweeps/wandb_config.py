"""Finds the defaults that a program of W&B gives to `wandb.init(config=...)`, in its text."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tuner.config.proposals.ranges import Option


def wandb_defaults(tree: ast.Module) -> list[Option]:
    """The keys of `wandb.config` with their values; empty if the program has none in its text.

    Args:
        tree: The program, which is not run.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "wandb.init":
            given = next((each.value for each in node.keywords if each.arg == "config"), None)
            if given is not None:
                values = _mapping(given, tree)
                return [Option(name=name, default=value) for name, value in values.items()]
    return []


def _mapping(node: ast.expr, tree: ast.Module) -> Mapping[str, object]:
    """A dict as it is written, also under a name."""
    if isinstance(node, ast.Name):
        assigned = [
            each.value
            for each in ast.walk(tree)
            if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == node.id
        ]
        return _mapping(assigned[0], tree) if len(assigned) == 1 else {}
    return dict(_items(node))


def _items(node: ast.expr) -> Iterator[tuple[str, object]]:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "dict":
        for word in node.keywords:
            if word.arg and isinstance(word.value, ast.Constant):
                yield word.arg, word.value.value
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                yield str(key.value), value.value
