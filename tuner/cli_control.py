"""`tuner pause`, `resume`, `stop`, `set`, `retry`, `why`: a study that runs, from any terminal.

What is asked for is written into the study's database, with who and when; whoever works on the
study reads it within a second or two. As in `tuner.cli`, a command imports what it needs when it
is called.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli_studies import Debug, Source, Study
from tuner.edge import Edge

if TYPE_CHECKING:
    from tuner.messages import Json

app = typer.Typer()

_EDGE = {
    "interrupted": "Interrupted. Nothing was asked for.",
    "accident": "Nothing was asked for. With --debug it shows where; please report that.",
}


@app.command()
def pause(source: Source = "study.yaml", study: Study = None, debug: Debug = False) -> None:
    """Lets no trial of a study start until `tuner resume`; those that run go on."""
    with Edge(debug, **_EDGE):
        _order("pause", source, study)


@app.command()
def resume(source: Source = "study.yaml", study: Study = None, debug: Debug = False) -> None:
    """Lets trials of a paused study start again."""
    with Edge(debug, **_EDGE):
        _order("resume", source, study)


@app.command()
def stop(
    source: Source = "study.yaml",
    study: Study = None,
    trial: Annotated[int | None, typer.Option("--trial", help="Only this one.")] = None,
    debug: Debug = False,
) -> None:
    """Ends a study wherever it runs, as Ctrl-C does there; or ends one trial, as if pruned."""
    with Edge(debug, **_EDGE):
        _order("stop", source, study, trial=trial)


@app.command("set")
def set_(
    limits: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE...", help="As budget.trials=200.")
    ],
    source: Annotated[
        str, typer.Option("--in", help="A study file, a database URL, or an SQLite file.")
    ] = "study.yaml",
    study: Study = None,
    debug: Debug = False,
) -> None:
    """Changes the budget of a study that runs."""
    with Edge(debug, **_EDGE):
        from tuner.verbs.ordering import read_limits

        _order("set", source, study, arguments=read_limits(limits))
        print("A later start reads the study file: change it there, too.", flush=True)


@app.command()
def retry(
    trial: Annotated[int, typer.Option("--trial", help="One that has ended.")],
    source: Source = "study.yaml",
    study: Study = None,
    debug: Debug = False,
) -> None:
    """Lets the configuration of a trial be tried once more, before all others."""
    with Edge(debug, **_EDGE):
        from tuner.verbs.retrying import retry as retry_trial
        from tuner.verbs.source import find_place

        done = retry_trial(find_place(source, study, os.environ), trial)
        print(
            f"Trial {done.new_number} of study {done.study!r} waits, with the parameters of trial "
            f"{done.trial_number}. Whoever works on the study takes it next.",
            flush=True,
        )


@app.command()
def why(
    trial: Annotated[int, typer.Argument(help="Its number.")],
    source: Source = "study.yaml",
    study: Study = None,
    debug: Debug = False,
) -> None:
    """Explains a trial: what it waits for, why it was pruned, what failed."""
    with Edge(debug, **_EDGE):
        from tuner.verbs.source import choose_study, find_place, reading
        from tuner.verbs.why import explain

        place, now = find_place(source, study, os.environ), datetime.now(UTC)
        with reading(place) as (_, connection):
            print(explain(connection, choose_study(connection, place), trial, now), flush=True)


def _order(
    name: str,
    source: str,
    study: str | None,
    *,
    trial: int | None = None,
    arguments: dict[str, Json] | None = None,
) -> None:
    from tuner.store.commands import Command, Order
    from tuner.verbs.ordering import order, whoever_asks
    from tuner.verbs.source import find_place

    wanted = Command(
        order=Order(name),
        trial_number=trial,
        arguments=arguments or {},
        asked_by=whoever_asks(),
    )
    done = order(find_place(source, study, os.environ), wanted, datetime.now(UTC))
    hearers = ", ".join(done.hearers) or "nobody now; it holds for the next start"
    print(f"Asked of study {done.study!r}: {name}. Who works on it: {hearers}.", flush=True)
