"""The command line: `tuner run`, `validate`, `init`, `devices`, `logs`, `best`.

Each command imports what it needs when it is called: a study starts half a second sooner.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from typer.core import TyperCommand

from tuner.checkpoints.paths import StudyFiles
from tuner.cli import (
    control,
    dashboard,
    db,
    docs,
    engines,
    queue,
    report,
    schedule,
    shares,
    simulate,
    studies,
)
from tuner.cli.error_exit import Edge
from tuner.cli.options import A_STUDY, STUDY_FILE, Source, WithArguments, WithCommand
from tuner.compose.rank_check import refuse_several_ranks
from tuner.config import StudyConfig, load_study_file
from tuner.config.storage_url import without_passwords
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED, EXIT_COME_BACK, ConfigError
from tuner.host.distribution import DISTRIBUTION
from tuner.queries.results.format_names import Format
from tuner.terminal.lasting_output import lasting_output

if TYPE_CHECKING:
    from tuner.compose.allocations.lent import Lent
    from tuner.compose.winner_run import WinnerRun
    from tuner.config.proposals.typed_command import TypedCommand

DEFAULT_FILE = Path(STUDY_FILE)
_WIDTH_OF_A_FILE = 240

app = typer.Typer(
    name="tuner",
    help="Hyperparameter tuning that owns your GPUs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(db.app)
app.add_typer(studies.app)
app.add_typer(control.app)
app.add_typer(engines.app)
app.add_typer(dashboard.app)
app.add_typer(simulate.app)
app.add_typer(report.app)
app.add_typer(schedule.app)
app.add_typer(docs.app)
app.add_typer(shares.app)
app.add_typer(queue.app)

StudyFile = Annotated[Path, typer.Argument(help="The study file.", show_default=True)]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the study file, such as sampler.seed=1.",
    ),
]
Trials = Annotated[int | None, typer.Option("--trials", help="Override budget.trials.")]
Study = Annotated[str | None, typer.Option("--study", help="Override the name of the study.")]
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- ARGUMENTS]", help="Arguments for the program of trial.command."),
]


@app.command(cls=WithArguments)
def run(
    file: Annotated[
        Path,
        typer.Argument(
            help="The study file, or a Python program that calls Optuna's study.optimize.",
            show_default=True,
        ),
    ] = DEFAULT_FILE,
    words: Words = None,
    overrides: Overrides = None,
    trials: Trials = None,
    study: Study = None,
    best: Annotated[
        bool,
        typer.Option(
            "--best",
            help="Train the winner of the study, on all devices, and keep its checkpoint.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show devices, sampler and pruner, and start nothing.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --dry-run: print every detail as JSON.")
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port of a Prometheus endpoint; 0 is any free port."),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(help="Address of the endpoint; 0.0.0.0 is every address of this machine.")
    ] = "127.0.0.1",
    engine: Annotated[
        str | None,
        typer.Option(help="Engine in whose allocation this runs; tuner submit writes it."),
    ] = None,
    adapt: Annotated[
        bool,
        typer.Option("--adapt", help="With --engine: ask for more nodes while trials wait."),
    ] = False,
    files: Annotated[
        Path | None,
        typer.Option(
            help="Folder of logs, checkpoints and relative databases. Default: that of the file."
        ),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Runs a study on the devices of this machine. The same command continues it."""
    with lasting_output(), Edge(debug):
        console = Console()
        program = None
        environ: Mapping[str, str] = os.environ
        refuse_several_ranks(_command_line(), environ)
        if file.suffix == ".py":
            from tuner.compose.programs import optuna_program

            program = optuna_program.read_program(file, words or (), environ)
            file, words, environ = program.file, None, program.environ
        config = load_study_file(
            file,
            overrides=overrides or (),
            environ=environ,
            study=study,
            trials=trials,
            extra_arguments=words or (),
            home=files,
        )
        if program is not None:
            optuna_program.announce(program, config, console)
        winner = _winner(config, trials) if best else None
        if winner is not None:
            config, program = winner.config, None
        if dry_run:
            from tuner.compose.dry_run import DryRun

            would = DryRun.of(config, os.environ)
            print(would.as_json() if as_json else would.as_text())
            return
        if as_json:
            raise ConfigError("shows a dry run only. Write: --dry-run --json", key="--json")
        if program is not None:
            optuna_program.prepare(program, config)
        serve_at = None if metrics_port is None else (metrics_host, metrics_port)
        if winner is not None:
            print(winner.announcement, flush=True)
        lent = _lent(config, engine, adapts=adapt) if engine is not None else None
        from tuner.compose import run_report
        from tuner.compose.start import run_study

        end = run_study(config, console, os.environ, serve_at, lent=lent)
        print(run_report.summary(end, config, _command_line()))
        if program is not None and end.exit_code == EXIT_BUDGET_REACHED:
            optuna_program.run_rest(program, config)
        if winner is not None:
            print(winner.checkpoint_text)
        raise typer.Exit(end.exit_code)


def _lent(config: StudyConfig, engine: str, *, adapts: bool) -> Lent:
    from tuner.compose.allocations.lent import find_lent

    # Until trials run, when it lets them save, the notice of the engine ends this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_COME_BACK))
    return find_lent(config, engine, os.environ, adapts=adapts)


def _winner(config: StudyConfig, trials: int | None) -> WinnerRun:
    from tuner.compose.winner_run import winner_run

    return winner_run(config, os.environ, trials=trials)


@app.command()
def validate(
    file: StudyFile = DEFAULT_FILE,
    overrides: Overrides = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Checks a study file: keys, program, devices and database. Starts nothing."""
    with Edge(debug):
        from tuner.compose import run_report

        config = load_study_file(file, overrides=overrides or (), environ=os.environ)
        print(run_report.validate(config, os.environ))


@app.command(cls=WithCommand)
def init(
    file: StudyFile = DEFAULT_FILE,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND]",
            help="Propose the study from the command that trains, such as "
            "python train.py --data DIR.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Propose the study from a W&B sweep, from the options of a Python "
            "script (which is not run), from a program that uses Optuna (which is run up to "
            "study.optimize) or from a Hydra configuration.",
        ),
    ] = None,
) -> None:
    """Writes a study file that explains each key, or proposes one from another file."""
    with Edge(False):
        from tuner.compose import run_report

        typed = _typed_command(words or (), source)
        print(run_report.init(file, force=force, source=source, typed=typed))


def _typed_command(words: Sequence[str], source: Path | None) -> TypedCommand | None:
    from tuner.config.proposals.typed_command import read_command

    if words and source is not None:
        problem = f"and a command are given. Write: tuner init -- {shlex.join(words)}"
        raise ConfigError(problem, key="--from")
    return read_command(words) if words else None


@app.command()
def schema() -> None:
    """Prints the JSON Schema of study files, for editors."""
    from tuner.config.schema.json_schema import schema_path

    print(schema_path().read_text(encoding="utf-8"), end="")


@app.command()
def devices(
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until Ctrl-C.")] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds between two readings of --watch.")
    ] = 1.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON per reading.")
    ] = False,
    allocations: Annotated[
        str | None,
        typer.Option(
            metavar="STUDY", help=f"Instead: the nodes that engines lend a study. {A_STUDY}"
        ),
    ] = None,
    study: Study = None,
) -> None:
    """Lists the devices of this machine, their memory and use, and the processes on them."""
    with Edge(False):
        if allocations is not None:
            from tuner.cli.engines import print_allocations

            print_allocations(allocations, study, as_json=as_json)
            return
        from tuner.devices.table import open_table
        from tuner.terminal.machine.devices import show_devices, watch_devices
        from tuner.terminal.machine.shares import rows_with_shares

        # A UUID that is broken over lines cannot be copied or searched for.
        console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE)
        with open_table(os.environ) as read:
            look = rows_with_shares(read, os.environ, partial(print, file=sys.stderr, flush=True))
            if watch:
                watch_devices(console, look, interval_s=interval_s, as_json=as_json)
            else:
                show_devices(console, look(), as_json=as_json)


@app.command()
def logs(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STUDY] TRIAL", help=f"{A_STUDY} Then the number of the trial."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new output until the attempt ends.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, help="Only so many lines of the end.")
    ] = None,
    attempt: Annotated[
        int | None, typer.Option(help="Number of the attempt. Default: the last one.")
    ] = None,
    rank: Annotated[
        int, typer.Option(help="Rank of the process, for a trial on several devices.")
    ] = 0,
    allocation: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Instead of a trial: print the output of the dispatcher in this allocation.",
        ),
    ] = None,
    study: Study = None,
) -> None:
    """Prints the output of a trial."""
    with Edge(False):
        if allocation is not None:
            from tuner.cli.engines import print_log

            print_log(words or [], allocation, study, tail)
            return
        from tuner.queries.locate import find_place
        from tuner.terminal import logs as trial_logs
        from tuner.terminal.trial_words import read_words

        source, trial = read_words(words or [], "tuner logs")
        place = find_place(source or str(DEFAULT_FILE), study, os.environ)
        config = place.config
        if config is None:
            problem = "names a database, but logs are next to the study file. Name the study file."
            raise ConfigError(problem, key="tuner logs")
        files = StudyFiles(folder=config.home, study=place.study or config.study)
        path = trial_logs.locate_log(place, files, trial, attempt, rank, os.environ)
        print(path, file=sys.stderr)
        is_over = partial(trial_logs.is_attempt_over, place, trial, path)
        parts = (
            trial_logs.follow_log(path, is_over, tail)
            if follow
            else trial_logs.text_of_log(path, tail)
        )
        for part in parts:
            sys.stdout.write(part)
            sys.stdout.flush()


@app.command()
def best(
    source: Source = STUDY_FILE,
    top: Annotated[int, typer.Option("--top", min=1, help="Number of configurations.")] = 1,
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.YAML,
    study: Study = None,
) -> None:
    """Prints the best configurations of a study."""
    with Edge(False):
        from tuner.queries.locate import find_place
        from tuner.queries.results.best import load_top
        from tuner.queries.results.formats import render
        from tuner.queries.results.range_ends import load_range_ends

        place = find_place(source, study, os.environ)
        print(render(load_top(place.url, place.study, n=top), form), flush=True)
        if form is Format.YAML:  # The one for people; scripts read the others.
            for each in load_range_ends(place.url, place.study):
                print(each.text, file=sys.stderr)


# Without a handler Python's own would print an accident's traceback.
logging.getLogger("tuner").addHandler(logging.NullHandler())


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"tuner {importlib.metadata.version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Hyperparameter tuning that owns your GPUs."""


def main() -> None:
    """Entry point of the `tuner` program."""
    app()


def run_main() -> None:
    """Entry point of `python -m tuner.run`."""
    _only(run, "python -m tuner.run", WithArguments)


def best_main() -> None:
    """Entry point of `python -m tuner.best`."""
    _only(best, "python -m tuner.best")


def _only(command: Callable[..., None], name: str, kind: type[TyperCommand] = TyperCommand) -> None:
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(cls=kind)(command)
    single(prog_name=name)


def _command_line() -> str:
    """What the user typed, to be typed again."""
    program = Path(sys.argv[0]).name
    start = ["python", "-m", "tuner.run"] if program == "run.py" else [program]
    return without_passwords(shlex.join([*start, *sys.argv[1:]]))


assert EXIT_BAD_INPUT == 2, "Typer's own exit code for a wrong command line"
