"""The page about the command line, from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

from typer import Context
from typer.core import TyperCommand, TyperGroup

_HEAD = """\
# Command line

Every command with its arguments and options; `tuner COMMAND --help` prints the same.
[Operations](operations.md#commands-for-running-studies) shows what each command is for, and lists
the [exit codes](operations.md#exit-codes). `python -m tuner.run` is the same as `tuner run`, and
`python -m tuner.best` the same as `tuner best`.
"""
#: What Typer puts behind a help text: whether it is required, the default, the range.
_EXTRA = re.compile(r"\s*\[((?:default|required|x|\d)[^\]]*)\]$")
#: The brackets that Typer adds around the name of an argument.
_ADDED_BRACKETS = re.compile(r"\[(\[.*\])\]|\{(.*)\}(?:\.\.\.)?")


def command_line_page(program: TyperGroup) -> str:
    """The page in Markdown.

    Args:
        program: The command `tuner`, with its commands inside.
    """
    context = _context(program, program.name or "", None)
    return "\n".join([_HEAD, *_parameters(program, context), *_commands(program, context)])


def _commands(group: TyperGroup, context: Context) -> Iterator[str]:
    """A section for each command that does something, in the order of their names."""
    for name, command in sorted(group.commands.items()):
        inner = _context(command, name, context)
        if isinstance(command, TyperGroup):
            yield from _commands(command, inner)
        elif isinstance(command, TyperCommand):
            path = inner.command_path
            yield f"## {path}\n"
            yield f"```text\n{path} {_usage(command, inner)}\n```\n"
            yield f"{(command.help or '').strip()}\n"
            yield from _parameters(command, inner)


def _usage(command: TyperCommand, context: Context) -> str:
    pieces = command.collect_usage_pieces(context)
    return " ".join(
        _ADDED_BRACKETS.sub(lambda found: found[1] or found[2], each) for each in pieces
    )


def _context(command: object, name: str, parent: Context | None) -> Context:
    """What Typer asks for where a command describes itself; nothing is run."""
    assert isinstance(command, TyperCommand | TyperGroup)
    return Context(command, info_name=name, parent=parent)


def _parameters(command: TyperCommand | TyperGroup, context: Context) -> Iterator[str]:
    records = (each.get_help_record(context) for each in command.params)
    if lines := [_line(*record) for record in records if record is not None]:
        yield "".join(lines)


def _line(name: str, text: str) -> str:
    extra = ""
    if found := _EXTRA.search(text):
        text, extra = text[: found.start()], f" ({_plain(found[1])})"
    return f"- `{name}`{extra}: {text}\n"


def _plain(extra: str) -> str:
    """`default: 1; x>=1` as `default 1, x>=1`."""
    return extra.replace("; ", ", ").replace("default: ", "default ")
