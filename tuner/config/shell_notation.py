"""Detects shell syntax in the words of a command, which no shell reads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from tuner.config.mistakes import Mistake
from tuner.search_spaces import AnySpace, SearchSpace

_OF_A_SHELL = frozenset({"|", "||", "&&", "&", ">", ">>", "<", "2>", "2>&1", "&>"})
_VARIABLE = re.compile(r"\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})")
_OUTPUT_OF_A_COMMAND = re.compile(r"\$\([^)]*\)|`[^`]+`")
_HOME = re.compile(r"(?:^|(?<==))~(?=/|$)")


def shell_mistakes(
    command: Sequence[str], env: Mapping[str, str], space: AnySpace | None
) -> Iterator[Mistake]:
    """Pipes, variables and other parts of a shell's line; programs would get them as text."""
    yield from _lines(command)
    # A shell that is a part of the command reads them itself.
    if "-c" in command:
        return
    names = space.names if isinstance(space, SearchSpace) else ()
    for number, word in enumerate(command):
        if problem := _problem(word, names, _way_out(command, number)):
            yield Mistake(key=f"trial.command[{number}]", problem=problem)
    for name, value in env.items():
        way_out = f"Trials inherit the environment: run export {name}={value} before the start."
        if problem := _problem(value, names, way_out):
            yield Mistake(key=f"trial.env.{name}", problem=problem)


def _lines(command: Sequence[str]) -> Iterator[Mistake]:
    for number, word in enumerate(command):
        if word in _OF_A_SHELL:
            script = "Write the line into a file, such as run.sh, with $1 in place of a parameter"
            yield Mistake(
                key=f"trial.command[{number}]",
                problem=f"is {word!r}, but no shell reads the command. {script}: command: "
                '[sh, run.sh, "{lr}"]. What a trial prints is kept: tuner logs',
            )
            return
    if command and " " in command[0].strip() and "/" not in command[0].partition(" ")[0]:
        words = "[" + ", ".join(_quoted(each) for each in command[0].split()) + "]"
        problem = f"is {command[0]!r}, but each word is an item of its own. Write {words}"
        yield Mistake(key="trial.command[0]", problem=problem)


def _problem(text: str, names: Sequence[str], way_out: str) -> str:
    """Why a word would differ in a shell; empty if it would not."""
    for match in _VARIABLE.finditer(text):
        name = match["plain"] or match["braced"]
        if name in names:
            place = text.replace(match[0], f"{{{name}}}")
            return f"is {text!r}, but no shell fills it: the place is {{{name}}}. Write '{place}'."
        # Other small letters may be a text: a regular expression, a template of the program.
        if match["braced"] or name.isupper() or name in os.environ:
            path = os.environ.get(name, "")
            # Other values may be secrets.
            return _unfilled(text, match[0], path if os.path.isdir(path) else "", way_out)
    if output := _OUTPUT_OF_A_COMMAND.search(text):
        return _unfilled(text, output[0], "", way_out)
    if _HOME.search(text):
        return _unfilled(text, "~", os.path.expanduser("~"), way_out)
    return ""


def _unfilled(text: str, part: str, path: str, way_out: str) -> str:
    if path.startswith("/"):
        way_out = f"Write {_quoted(text.replace(part, path))}"
    return f"is {text!r}, but no shell reads the command to fill {part}. {way_out}"


def _way_out(command: Sequence[str], number: int) -> str:
    """The command with a shell that reads it up to a word, and gets the other words as they are."""
    read, others = command[: number + 1], command[number + 1 :]
    if any("{" in re.sub(r"\$\{", "", word) for word in read):
        return 'Let a shell read it: command: [sh, run.sh, "{lr}"], with the line in run.sh.'
    script = " ".join(["exec", *read[:-1], f'"{read[-1]}"', '"$@"'])
    words = ", ".join(["sh", "-c", f"'{script}'", "sh", *map(_quoted, others)])
    return f"Let a shell read it: command: [{words}]"


def _quoted(word: str) -> str:
    return f'"{word}"' if "{" in word else word
