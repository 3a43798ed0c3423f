"""Subcommands of `argparse`: which one a proposed command starts."""

from __future__ import annotations

import ast
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
