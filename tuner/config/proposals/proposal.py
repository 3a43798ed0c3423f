"""A proposed study, and its file."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuner.config.notation.command_template import BUILTINS, ENV_SWEEP
from tuner.config.rules import STEP
from tuner.config.schema.template import schema_line
from tuner.search_spaces.flow import flow, line

_WIDTH = 100
_UNFIT_FOR_A_NAME = re.compile(r"[^\w.+-]+")
_OWN_PLACE = re.compile(rf"(\{{(?:{'|'.join(BUILTINS)})\}})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A study as another program's file describes it."""

    study: str
    #: The file that it was read from, as the user named it.
    source: str
    command: tuple[str, ...]
    #: `trial.metrics.pattern`; empty for none.
    pattern: str = ""
    #: Parameters and constants by name, in a form of `search_space`.
    space: Mapping[str, object]
    objectives: Mapping[str, str] = field(default_factory=lambda: {"value": "minimize"})
    #: `trial.env`.
    env: Mapping[str, str] = field(default_factory=dict)
    #: `trial.resources`.
    resources: Mapping[str, int] = field(default_factory=dict)
    #: `trial.parallel`; empty for the default.
    parallel: str = ""
    #: Other keys at the top of the file.
    settings: Mapping[str, object] = field(default_factory=dict)
    #: Parts that were not carried over, and values to check; a sentence each.
    notes: tuple[str, ...] = ()


def study_name(text: str) -> str:
    """A study's name that is also fit for files."""
    return _UNFIT_FOR_A_NAME.sub("-", text).strip("-.")[:100] or "my-study"


def objective_name(text: str) -> str:
    """An objective's name; training steps have a name of their own."""
    return "value" if text == STEP else text


def place(name: str) -> str:
    """Placeholder of a parameter in a command."""
    return f"{{{name}}}"


def sweep_env() -> dict[str, str]:
    """Lets a program of W&B find its parameters in `wandb.config`, without options."""
    return {ENV_SWEEP: f"{place('checkpoint_dir')}/sweep-parameters.yaml"}


def literal(word: str) -> str:
    """A word of a command that has no places."""
    return word.replace("{", "{{").replace("}", "}}")


def typed_word(word: str) -> str:
    """A word as a person typed it: the tuner's own places, such as `{checkpoint_dir}`, stay."""
    texts_and_places = _OWN_PLACE.split(word)
    return "".join(
        part if index % 2 else literal(part) for index, part in enumerate(texts_and_places)
    )


def study_text(proposal: Proposal, folder: Path) -> str:
    """The study file of a proposal.

    Args:
        proposal: The study.
        folder: Folder of the file. Its first line names the schema for editors.
    """
    lines = [
        schema_line(folder).removesuffix("\n"),
        *_comment(f"Proposed from {proposal.source}. Check each line, then: tuner validate."),
        *(each for note in proposal.notes for each in _comment(f"- {note}")),
        "",
        line("study", proposal.study),
        line("objectives", dict(proposal.objectives)),
        "trial:",
        f"  {line('command', list(proposal.command))}",
    ]
    if proposal.pattern:
        lines.append(f"  {line('metrics', {'pattern': proposal.pattern})}")
    if proposal.resources:
        lines.append(f"  {line('resources', dict(proposal.resources))}")
    if proposal.parallel:
        lines.append(f"  {line('parallel', proposal.parallel)}")
    if proposal.env:
        lines.append(f"  {line('env', dict(proposal.env))}")
    if proposal.space:
        lines += ["search_space:", *(f"  {line(*each)}" for each in proposal.space.items())]
    lines += [line(key, value) for key, value in proposal.settings.items()]
    return "\n".join(lines) + "\n"


def shown(value: object) -> str:
    """A value as a note quotes it."""
    return flow(value)


def _comment(text: str) -> list[str]:
    """Comment lines; a control character of a name would make the file unreadable."""
    return textwrap.wrap(
        "".join(sign if sign.isprintable() else "?" for sign in text),
        _WIDTH,
        initial_indent="# ",
        subsequent_indent="#   " if text.startswith("-") else "# ",
        break_long_words=False,
        break_on_hyphens=False,
    )
