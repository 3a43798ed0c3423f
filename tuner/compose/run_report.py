"""Messages of the command line: the end of a study, a dry run, a log's path."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from tuner.compose.programs.optuna_program import is_optuna_program, propose_study
from tuner.compose.programs.program_text import check_text
from tuner.compose.study_plan import (
    check_study,
    find_devices,
)
from tuner.compose.transfer import begins_with
from tuner.compose.wiring import StudyEnd
from tuner.config import StudyConfig
from tuner.config.machine_checks import remarks
from tuner.config.proposals.proposal import study_text
from tuner.config.proposals.read import propose
from tuner.config.proposals.typed_command import TypedCommand
from tuner.config.schema.template import study_template
from tuner.errors import ConfigError
from tuner.search.incumbent import BestTrial
from tuner.store.connection.database import open_database
from tuner.terminal import wording
from tuner.terminal.studies import confirmation_lines
from tuner.terminal.tables import table

#: More are a page of their own: `tuner best`, or the dashboard.
_MOST_OF_FRONT = 20


def summary(end: StudyEnd, config: StudyConfig, command_line: str) -> str:
    """The summary at a study's end: its result, the best configuration, how to continue."""
    result = end.result
    paused = f", {result.n_paused} paused" if result.n_paused else ""
    lines = [
        f"{result.reason}: {result.n_completed} completed, {result.n_pruned} pruned, "
        f"{result.n_failed} failed{paused}"
    ]
    if end.front:
        lines += _front_lines(end.front)
        lines.append(f"again: python -m tuner.best {_named(config)} --top {len(end.front)}")
    elif end.best:
        lines.append(f"best: {wording.values_text(end.best.values)} (trial {end.best.number})")
        lines += [f"  {name}: {wording.short(value)}" for name, value in end.best.params.items()]
        lines += confirmation_lines(end.confirmation)
        lines += [each.text for each in end.range_ends]
        lines.append(f"again: python -m tuner.best {_named(config)}")
    elif result.n_completed:
        lines.append(
            "There is no best trial: each that completed has an infinite value or violates a "
            "constraint."
        )
    elif result.n_failed:
        lines.append(
            f"No trial has completed. See what one printed: tuner logs {_log_words(config)}"
        )
    elif result.n_pruned:
        lines.append(
            "No trial has completed: all were pruned. Write pruner: none to let each run to its "
            "end."
        )
    if result.n_waiting and result.reason.startswith("budget reached"):
        n, limit = result.n_waiting, config.budget.trials
        more = f": --trials {limit + n}" if limit else "."
        which = "1 trial waits" if n == 1 else f"{n} trials wait"
        lines.append(f"{which} for a larger budget{more}")
    if result.is_interrupted:
        lines.append(f"Stopped; everything is saved. To continue: {command_line}")
    return "\n".join(lines)


def _front_lines(front: Sequence[BestTrial]) -> list[str]:
    """A table of the Pareto front."""
    n_shown = min(len(front), _MOST_OF_FRONT)
    names = list(front[0].values)
    in_order = sorted(front, key=lambda each: each.values[names[0]])
    rows = [
        (
            str(each.number),
            *(f"{value:.6g}" for value in each.values.values()),
            wording.settings(each.params),
        )
        for each in in_order[:n_shown]
    ]
    head = f"Pareto front: {len(front)} trial{'s' if len(front) > 1 else ''}"
    more = f" (the first {n_shown} are shown)" if n_shown < len(front) else ""
    shown = table(("trial", *names, "parameters"), rows)
    return [head + more, *(f"  {line}" for line in shown.splitlines())]


def validate(config: StudyConfig, environ: Mapping[str, str]) -> str:
    """Runs the checks of a start, but starts no trial and writes no study.

    The program is read and not imported: an import may train, block or write.

    Raises:
        TunerError: If a check fails.
    """
    check_study(config)
    begins_with(config)
    host = find_devices(config, environ, None)
    works = check_text(config)
    database = Path(config.storage.removeprefix("sqlite:///"))
    if not config.storage.startswith("sqlite") or database.exists():
        open_database(config.storage, read_only=True).close()
    names = ", ".join(device.label for device in host.devices)
    fine = f"{config.file} is fine: study {config.study!r} would run on {names}."
    return "\n".join([*remarks(config), *works, fine])


def init(
    path: Path, *, force: bool, source: Path | None = None, typed: TypedCommand | None = None
) -> str:
    """Writes the commented study file, or one derived from another program's file.

    Args:
        path: The study file.
        force: Whether to replace an existing file.
        source: A W&B sweep, a Python script or a configuration; None for the commented file.
        typed: A command line that starts a Python script, in place of `source`.

    Raises:
        ConfigError: If the file exists already, its folder is not writable, or the source has
            nothing to tune.
    """
    if path.exists() and not force:
        raise ConfigError(
            "exists already. Name another file, or overwrite it with --force.", file=str(path)
        )
    notes = _write_study(path, source, typed)
    file = shlex.quote(str(path))
    end = f"{path} is written. Edit it, then: tuner validate {file}; python -m tuner.run {file}"
    return "\n".join([*(f"- {note}" for note in notes), end])


def _write_study(path: Path, source: Path | None, typed: TypedCommand | None) -> Sequence[str]:
    """Writes the study file; returns notes on its content."""
    source = typed.script if typed else source
    if source is not None and is_optuna_program(source):
        if typed and typed.arguments:
            problem = "calls study.optimize, and takes its arguments at each start: "
            words = shlex.join(typed.arguments)
            raise ConfigError(f"{problem}tuner run {source} -- {words}", file=str(source))
        return propose_study(source, path)
    proposal = None if source is None else propose(source, path.parent, typed)
    text = study_text(proposal, path.parent) if proposal else study_template(path.parent)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}.", file=str(path)) from error
    return proposal.notes if proposal else ()


def _log_words(config: StudyConfig) -> str:
    """The study and its first trial; `--study` follows both."""
    file, *named = shlex.split(_named(config))
    return shlex.join([file, "0", *named])


def _named(config: StudyConfig) -> str:
    """The study's name for another command: the file, and `--study` if it was given."""
    try:
        text = config.path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # Of a study that Python code has started.
        text = config.text
    written = yaml.safe_load(text).get("study")
    words = [config.file] if written == config.study else [config.file, "--study", config.study]
    return shlex.join(words)
