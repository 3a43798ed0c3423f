"""`tuner submit`, `scale`, `cancel`: nodes of Slurm, Kubernetes, Ray or ssh for a study.

As in `tuner.cli.main`, a command imports what it needs when it is called.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.error_exit import Edge
from tuner.cli.options import Debug, Study
from tuner.config import load_study_file
from tuner.errors import ConfigError

if TYPE_CHECKING:
    from tuner.compose.allocations.submission import Change, Plan
    from tuner.config.sections.engine import NodeRange
    from tuner.queries.locate import Place

app = typer.Typer()

_FILE = Path("study.yaml")
_EDGE = {
    "interrupted": "Interrupted. tuner devices --allocations shows what was submitted.",
    "accident": "With --debug it shows where; please report that.",
}
StudyFile = Annotated[Path, typer.Argument(help="The study file.", show_default=True)]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="ENGINE",
        help="slurm, kubernetes, ray or ssh. Default: engine.name of the study file.",
    ),
]


@app.command()
def submit(
    file: StudyFile = _FILE,
    on: On = None,
    nodes: Annotated[
        str | None,
        typer.Option(help="Number of nodes, such as 4 or 2..16. Default: engine.nodes."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the script or manifest, and submit nothing."),
    ] = False,
    adapt: Annotated[
        bool,
        typer.Option(
            "--adapt",
            help="Begin with the least number of nodes; the study asks for more, up to the most, "
            "while it has more trials than devices.",
        ),
    ] = False,
    study: Study = None,
    debug: Debug = False,
) -> None:
    """Requests nodes from an engine for the study. A repeated call requests no further ones."""
    with Edge(debug, **_EDGE):
        from tuner.compose.allocations import adaptation, submission

        plan = _plan(file, study, on, adapts=adapt)
        wanted = _nodes(nodes)
        if adapt:
            wanted = adaptation.begin(plan, wanted)
        if dry_run:
            print(submission.render(plan, wanted), end="", flush=True)
            return
        change = submission.submit(plan, wanted)
        _print_change(change, plan)


@app.command()
def scale(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[FILE] NODES", help="The study file, and a number such as 8, 2..16 or 0."
        ),
    ],
    on: On = None,
    study: Study = None,
    debug: Debug = False,
) -> None:
    """Changes the number of nodes of a study: submits more, or lets some save and end."""
    with Edge(debug, **_EDGE):
        from tuner.compose.allocations import submission

        if len(words) > 2:
            raise ConfigError(f"takes a study file and a number, not {words!r}.", key="tuner scale")
        file = Path(words[0]) if len(words) == 2 else _FILE
        wanted = _nodes(words[-1])
        assert wanted is not None
        plan = _plan(file, study, on)
        _print_change(submission.scale(plan, wanted), plan)


@app.command()
def cancel(
    file: StudyFile = _FILE, on: On = None, study: Study = None, debug: Debug = False
) -> None:
    """Stops a study on all of its nodes: pending ones are cancelled, running trials save."""
    with Edge(debug, **_EDGE):
        from tuner.compose.allocations import submission

        plan = _plan(file, study, on)
        _print_change(submission.end_all(plan), plan)


def _plan(file: Path, study: str | None, on: str | None, *, adapts: bool = False) -> Plan:
    from tuner.compose.allocations.submission import plan_submission

    config = load_study_file(file, environ=os.environ, study=study)
    return plan_submission(config, on, adapts=adapts)


def _nodes(text: str | None) -> NodeRange | None:
    """Parses a number of nodes.

    Raises:
        ConfigError: If it is invalid.
    """
    if text is None:
        return None
    from tuner.config.sections.engine import NodeRange, read_nodes

    if text.strip() == "0":
        return NodeRange(least=0, most=0)
    try:
        return read_nodes(text)
    except ValueError as error:
        raise ConfigError(str(error), key="The number of nodes") from error


def _print_change(change: Change, plan: Plan) -> None:
    from tuner.domain.allocation import AllocationState

    for remark in plan.remarks:
        print(remark)
    if change.new:
        names = ", ".join(each.name for each in change.new)
        print(f"Submitted to {change.engine}: {names}")
    if change.ending:
        print(f"Asked to end, trials save first: {', '.join(change.ending)}")
    states = [each.state.value for each in change.now]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    noun = "allocation" if len(states) == 1 else "allocations"
    print(f"Study {change.study!r} has {len(states)} {noun} now: {counts or 'none'}.")
    for each in change.now:
        if each.state is AllocationState.PENDING and each.reason:
            print(f"{each.name} waits: {each.reason}")
    print(f"To look: tuner status {plan.config.file}, or {change.look}", flush=True)


def print_allocations(source: str, study: str | None, *, as_json: bool) -> None:
    """Prints the allocations of a study, with the engine's current state if it can be queried."""
    from tuner.queries.allocations import read_allocations
    from tuner.queries.locate import choose_study, find_place, reading
    from tuner.terminal.allocations import allocations_text
    from tuner.terminal.tables import as_json as json_of

    place = find_place(source, study, os.environ)
    look_again(place)
    with reading(place) as (_, connection):
        stored = choose_study(connection, place)
        found = read_allocations(connection, stored.id)
    now = datetime.now(UTC)
    print(json_of(found) if as_json else allocations_text(found, stored.name, now), flush=True)


def look_again(place: Place) -> None:
    """Records the current state at a study's engines; unavailable engines are skipped."""
    from tuner.compose.allocations.look import look_at_engines

    for line in look_at_engines(place):
        print(line, file=sys.stderr, flush=True)


def print_log(words: list[str], name: str, study: str | None, tail: int | None) -> None:
    """Prints the output of the dispatcher of an allocation."""
    from tuner.compose.allocations.look import log_of
    from tuner.queries.locate import find_place
    from tuner.terminal.logs import text_of_log

    place = find_place(words[0] if words else str(_FILE), study, os.environ)
    found = log_of(place, name)
    if isinstance(found, Path):
        print(found, file=sys.stderr)
        for part in text_of_log(found, tail):
            sys.stdout.write(part)
    else:
        lines = found.splitlines(keepends=True)
        sys.stdout.writelines(lines if tail is None else lines[len(lines) - tail :])
    sys.stdout.flush()
