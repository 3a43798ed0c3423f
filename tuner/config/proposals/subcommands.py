"""Subcommands of `argparse`, click and typer: which one a proposed command starts."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

#: Names of subcommands that train, the most usual one first.
_TRAIN = ("train", "fit", "run", "finetune")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parser:
    """One assignment of `add_parser`."""

    #: Line and column: statements may share a line.
    place: tuple[int, int]
    variable: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subcommands:
    """The subcommands of a script."""

    parsers: tuple[_Parser, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Each subcommand once, in the order of the file."""
        return tuple(dict.fromkeys(each.command for each in self.parsers))

    @property
    def started(self) -> str:
        """The subcommand to propose: one named after training, otherwise the first."""
        usual = [name for name in _TRAIN if name in self.names]
        return next(iter((*usual, *self.names)), "")

    def of(self, call: ast.Call) -> str:
        """The subcommand that a call of `add_argument` belongs to; empty for all of them."""
        assert isinstance(call.func, ast.Attribute)
        variable = ast.unparse(call.func.value)
        place = (call.lineno, call.col_offset)
        before = [each for each in self.parsers if each.variable == variable and each.place < place]
        return before[-1].command if before else ""


def subcommands_of(tree: ast.Module) -> Subcommands:
    """Finds `name = subparsers.add_parser("train")`."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            call = node.value
            is_parser = isinstance(call.func, ast.Attribute) and call.func.attr == "add_parser"
            name = call.args[0] if is_parser and call.args else None
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                variable = ast.unparse(node.targets[0])
                place = (node.lineno, node.col_offset)
                found.append(_Parser(place=place, variable=variable, command=name.value))
    return Subcommands(parsers=tuple(sorted(found, key=lambda each: each.place)))


def function_subcommands(tree: ast.Module) -> dict[str, str]:
    """Functions that are subcommands of a group of click or an app of typer, with their names."""
    groups: set[str] = set()
    owners: dict[str, dict[str, str]] = defaultdict(dict)
    for function, decorator in _decorated(tree):
        call = decorator.func if isinstance(decorator, ast.Call) else decorator
        owner, _, kind = ast.unparse(call).rpartition(".")
        if kind == "group":
            groups.add(function.name)
        elif kind == "callback":
            groups.add(owner)
        elif kind == "command":
            owners[owner][function.name] = _command_name(function, decorator)
    added = dict(_added(tree))
    found: dict[str, str] = {}
    for owner, functions in owners.items():
        # An app of typer with one command has no subcommands.
        is_group = owner in groups or (owner != "click" and len(functions) > 1)
        for name, command in functions.items():
            if is_group or name in added:
                found[name] = added.get(name) or command
    return found


def _decorated(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield from ((node, each) for each in node.decorator_list)


def _command_name(function: ast.FunctionDef, decorator: ast.expr) -> str:
    """As click makes it of the function's name, where the decorator has none."""
    if isinstance(decorator, ast.Call):
        given = [*decorator.args[:1], *(k.value for k in decorator.keywords if k.arg == "name")]
        for each in given:
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                return each.value
    return re.sub(r"_(command|cmd|group|grp)$", "", function.name).replace("_", "-")


def _added(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """`cli.add_command(train, name="fit")`: the function, and its name if it gets one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".add_command"):
            words = [*node.args[1:], *(k.value for k in node.keywords if k.arg == "name")]
            names = [each.value for each in words if isinstance(each, ast.Constant)]
            for function in node.args[:1]:
                yield ast.unparse(function), str(names[0]) if names else ""


def of_functions(found: Mapping[str, str]) -> Subcommands:
    """The subcommands of `function_subcommands`, in the order of the file."""
    return Subcommands(
        parsers=tuple(
            _Parser(place=(place, 0), variable="", command=name)
            for place, name in enumerate(found.values())
        )
    )
