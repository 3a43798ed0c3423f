"""The command that a person starts a program with: `tuner init -- python train.py --lr 0.1`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.config.proposals.launchers import Start, read_start
from tuner.config.proposals.proposal import Proposal, typed_word
from tuner.errors import ConfigError

_NUMBER = re.compile(r"-[\d.]")
_KEY = "--"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedCommand:
    """A command line that starts a Python script."""

    start: Start
    script: Path
    #: The words after the script.
    arguments: tuple[str, ...]

    @property
    def flags(self) -> frozenset[str]:
        """Names of the options that it sets."""
        return frozenset(_flag(group[0]) for group in _groups(self.arguments))


def read_command(words: Sequence[str]) -> TypedCommand:
    """Reads the words after `--`.

    Args:
        words: Such as `python train.py --lr 0.1`; the interpreter may be left out.

    Raises:
        ConfigError: If they do not start a Python script.
    """
    start = read_start(words)
    if start.script is None:
        problem = (
            f"is given {shlex.join(words)!r}, but reads the command of a Python script, such as"
        )
        advice = (
            "tuner init -- python train.py --data DIR. For another program write an empty study "
            "file (tuner init) and its command: [./train.sh, '{lr}'], with $1 in train.sh"
        )
        raise ConfigError(f"{problem} {advice}", key=f"tuner init {_KEY}")
    return TypedCommand(start=start, script=start.script, arguments=start.arguments)


def with_arguments(proposal: Proposal, typed: TypedCommand) -> Proposal:
    """The proposal with the words that were typed; values of the trial take precedence.

    Args:
        proposal: What was read from the script.
        typed: The command line.
    """
    start = typed.start
    _, program, *words = proposal.command
    is_module = bool(start.words) and start.words[-2:-1] == ["-m"]
    own = {_flag(word) for word in words}
    groups = list(_groups(typed.arguments))
    kept = [typed_word(word) for group in groups if _flag(group[0]) not in own for word in group]
    left_out = [
        " ".join(group) for group in groups if _flag(group[0]) in own and group[0] not in words
    ]
    # A subcommand stands before its options, and so before the last of the words.
    has_subcommand = any("=" not in word for word in words)
    words = [*words, *kept] if has_subcommand else [*kept, *words]
    note = f"Left out, as a trial has a value of its own: {', '.join(left_out)}."
    return replace(
        proposal,
        command=(*start.words, *([] if is_module else [program]), *words),
        env={**start.env, **proposal.env},
        resources={"gpus": start.n_ranks} if start.n_ranks > 1 else {},
        parallel="ddp" if start.is_ddp else "",
        notes=(*proposal.notes, *([note] if left_out else ()), *start.notes),
    )


def _groups(arguments: Sequence[str]) -> Iterator[list[str]]:
    """Each option with its values: `--lr 0.1`, `--lr=0.1`, `lr=0.1`, or a word alone."""
    group: list[str] = []
    for word in arguments:
        is_value = not word.startswith("-") or _NUMBER.match(word)
        if group and is_value and _takes_values(group[0]) and not _is_assignment(word):
            group.append(word)
            continue
        if group:
            yield group
        group = [word]
    if group:
        yield group


def _takes_values(word: str) -> bool:
    return word.startswith("-") and "=" not in word


def _is_assignment(word: str) -> bool:
    """Whether it is a word of Hydra's, such as `optimizer.lr=0.1`."""
    return re.match(r"[+~]*[A-Za-z_][\w./@]*=", word) is not None


def _flag(word: str) -> str:
    return word.partition("=")[0]
