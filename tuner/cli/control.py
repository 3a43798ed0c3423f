"""`tuner pause`, `resume`, `stop`, `set`, `retry`, `why`: control of a running study.

Commands are written to the study's database, with user and time; its dispatchers read them within a
second or two. As in `tuner.cli.main`, a command imports what it needs when it is called.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.error_exit import Edge
from tuner.cli.options import A_STUDY, STUDY_FILE, Debug, Source, Study

if TYPE_CHECKING:
    from tuner.actions.commands import Ordered
    from tuner.domain.messages import Json
    from tuner.queries.locate import Place

app = typer.Typer()

_ANSWER_S = 10.0
_LOOK_EVERY_S = 0.2

_EDGE = {
    "interrupted": "Interrupted. Nothing was asked for.",
    "accident": "Nothing was asked for. With --debug it shows where; please report that.",
}


@app.command()
def pause(source: Source = STUDY_FILE, study: Study = None, debug: Debug = False) -> None:
    """Pauses a study: no trial starts until `tuner resume`. Running trials continue."""
    with Edge(debug, **_EDGE):
        _order("pause", source, study)


@app.command()
def resume(source: Source = STUDY_FILE, study: Study = None, debug: Debug = False) -> None:
    """Resumes a paused study: trials start again."""
    with Edge(debug, **_EDGE):
        _order("resume", source, study)


@app.command()
def stop(
    source: Source = STUDY_FILE,
    study: Study = None,
    trial: Annotated[int | None, typer.Option("--trial", help="Stop only this trial.")] = None,
    debug: Debug = False,
) -> None:
    """Stops a study on all machines, like Ctrl-C; with --trial, stops and prunes one trial."""
    with Edge(debug, **_EDGE):
        _order("stop", source, study, trial=trial)


@app.command("set")
def set_(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[STUDY] KEY=VALUE...",
            help=f"{A_STUDY} Then the new values, such as budget.trials=200 or devices=[0,1].",
        ),
    ],
    study: Study = None,
    host: Annotated[
        str | None, typer.Option(help="Host whose devices change, if several hosts run the study.")
    ] = None,
    pid: Annotated[
        int | None, typer.Option(help="Process id of the dispatcher, if a host has several.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Changes the budget or the devices of a running study, or of the next start of an idle one."""
    with Edge(debug, **_EDGE):
        from tuner.actions.commands import read_limits, split_source

        source, pairs = split_source(words)
        limits = read_limits(pairs)
        done = _order("set", source or STUDY_FILE, study, arguments=limits, host=host, pid=pid)
        if done.command.kept_over is None:
            print("A later start reads the study file: change it there, too.", flush=True)


@app.command()
def retry(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STUDY] TRIAL", help=f"{A_STUDY} Then the number of a trial that has ended."
        ),
    ] = None,
    trial: Annotated[int | None, typer.Option("--trial", help="Number of the trial.")] = None,
    study: Study = None,
    debug: Debug = False,
) -> None:
    """Runs the configuration of a trial once more, before new ones."""
    with Edge(debug, **_EDGE):
        from tuner.actions.commands import whoever_asks
        from tuner.actions.retry import retry as retry_trial
        from tuner.queries.locate import find_place
        from tuner.terminal.trial_words import read_words

        given = [*(words or []), *([] if trial is None else [str(trial)])]
        source, number = read_words(given, "tuner retry")
        place, now = find_place(source or STUDY_FILE, study, os.environ), datetime.now(UTC)
        done = retry_trial(place, number, now, asked_by=whoever_asks())
        print(
            f"Trial {done.new_number} of study {done.study!r} waits, with the parameters of trial "
            f"{done.trial_number}. It starts before all trials that are not suggested yet. It "
            "counts in budget.trials.",
            flush=True,
        )


@app.command()
def why(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[STUDY] TRIAL", help=f"{A_STUDY} Then the trial's number."),
    ],
    study: Study = None,
    debug: Debug = False,
) -> None:
    """Explains a trial: what it waits for, why it was pruned, or what failed."""
    with Edge(debug, **_EDGE):
        from tuner.queries.dispatchers import living_here, read_dispatchers
        from tuner.queries.locate import choose_study, find_place, reading
        from tuner.shares.report import read_waits
        from tuner.terminal.trial_words import read_words
        from tuner.terminal.why import explain

        source, trial = read_words(words, "tuner why")
        place, now = find_place(source or STUDY_FILE, study, os.environ), datetime.now(UTC)
        with reading(place) as (_, connection):
            chosen = choose_study(connection, place)
            starts = read_dispatchers(connection, now, chosen.id)
            waits = read_waits(os.environ, living_here(starts))
            print(explain(connection, chosen, trial, now, waits), flush=True)


def _order(
    name: str,
    source: str,
    study: str | None,
    *,
    trial: int | None = None,
    arguments: dict[str, Json] | None = None,
    host: str | None = None,
    pid: int | None = None,
) -> Ordered:
    from tuner.actions.commands import order, whoever_asks
    from tuner.queries.locate import find_place
    from tuner.store.records.commands import Command, Order

    wanted = Command(
        order=Order(name),
        trial_number=trial,
        arguments=arguments or {},
        asked_by=whoever_asks(),
    )
    place = find_place(source, study, os.environ)
    done = order(place, wanted, datetime.now(UTC), host=host, pid=pid)
    if done.command.to is not None:
        _print_answer(place, done)
        return done
    if done.command.kept_over is not None:
        limits = ", ".join(f"{key}={value}" for key, value in done.command.arguments.items())
        print(
            f"No dispatcher runs study {done.study!r} now. Kept for its next start: {limits}.",
            flush=True,
        )
        return done
    hearers = ", ".join(done.places) or "none now; it is kept for the next start"
    print(f"Sent to study {done.study!r}: {name}. Dispatchers: {hearers}.", flush=True)
    return done


def _print_answer(place: Place, done: Ordered) -> None:
    """Waits for the dispatcher's reply: only it can decide what is possible."""
    from tuner.actions.commands import read_answer
    from tuner.errors import ConfigError
    from tuner.queries.locate import reading

    (hearer,) = done.places
    give_up_at_s = time.monotonic() + _ANSWER_S
    while time.monotonic() < give_up_at_s:
        with reading(place) as (_, connection):
            answer = read_answer(connection, done)
        if answer is not None and answer.is_refusal:
            raise ConfigError(answer.text)
        if answer is not None:
            print(f"{hearer}: {answer.text}", flush=True)
            return
        time.sleep(_LOOK_EVERY_S)
    print(
        f"Sent to {hearer}, which has not answered within {_ANSWER_S:g} s. It does so once it "
        "can: tuner status shows its devices.",
        flush=True,
    )
