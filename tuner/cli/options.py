"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

STUDY_FILE = "study.yaml"
#: What each verb takes.
A_STUDY = (
    "A study file, a database URL, an SQLite file, or the name of a study in the database of "
    f"{STUDY_FILE}. In a URL, ${{VARIABLE}} and ${{file:PATH}} are replaced."
)

Source = Annotated[str, typer.Argument(metavar="[STUDY]", help=A_STUDY, show_default=True)]
Study = Annotated[
    str | None, typer.Option("--study", help="Name of the study, if the database has several.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


class WithArguments(TyperCommand):
    """A command that passes the words after `--` to the user's program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Leaves the words after `--` unchanged.

        Raises:
            BadParameter: If there are too many words before it.
        """
        ours, theirs = _split(args)
        rest = super().parse_args(ctx, ours)
        if ctx.params["words"]:
            for each in ctx.params["overrides"] or ():
                if "=" not in each:
                    meant = f"{each}={ctx.params['words'][0]}"
                    problem = f"--set takes KEY=VALUE in one word. Write: --set {meant}"
                    raise typer.BadParameter(problem, ctx=ctx)
            typed = " ".join([*ctx.params["words"], *theirs])
            raise typer.BadParameter(
                "A study has one file, and arguments for its program come after --. "
                f"Write: {ctx.command_path} {ctx.params['file']} -- {typed}",
                ctx=ctx,
            )
        ctx.params["words"] = theirs
        return rest


class WithCommand(TyperCommand):
    """A command that reads the command line of a user's program after `--`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Leaves the words after `--` unchanged."""
        ours, theirs = _split(args)
        rest = super().parse_args(ctx, ours)
        ctx.params["words"] = [*(ctx.params["words"] or ()), *theirs]
        return rest


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """The words before the first `--`, and those after it."""
    if "--" not in words:
        return words, []
    place = words.index("--")
    return words[:place], words[place + 1 :]
