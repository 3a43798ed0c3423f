"""Runs one trial's program alone, with the trial's own parameters."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

import sqlalchemy as sa

from tuner.launch.request import trial_environment
from tuner.queries.dispatchers import has_our_tables
from tuner.queries.results.command_line import read_program
from tuner.queries.trials.attempts import StoredAttempt
from tuner.search_spaces import ParamValue
from tuner.store.schema.models import DispatcherRow

#: A separate folder: the trial's own checkpoints are not changed.
_CHECKPOINTS = "checkpoints-alone"


def read_command_alone(
    connection: sa.Connection,
    number: int,
    params: Mapping[str, ParamValue],
    attempt: StoredAttempt | None,
) -> str | None:
    """Shell lines, one per step; None if the tuner did not run the trial.

    Args:
        connection: With a consistent snapshot.
        number: The trial's number.
        params: The trial's parameters, including constants.
        attempt: Its last attempt.
    """
    if attempt is None or not has_our_tables(connection):
        return None
    query = sa.select(DispatcherRow.study_file, DispatcherRow.folder).where(
        DispatcherRow.id == attempt.dispatcher_id
    )
    row = connection.execute(query).one()
    return command_alone(row.study_file, row.folder, number, params, attempt)


def command_alone(
    study_file: str,
    folder: str,
    number: int,
    params: Mapping[str, ParamValue],
    attempt: StoredAttempt,
) -> str | None:
    """Like `read_command_alone`, from the text of a study file and its folder."""
    program = read_program(study_file)
    if program is None:
        return None
    builtins: dict[str, ParamValue] = {
        "trial_number": number,
        "seed": attempt.seed,
        "attempt_number": attempt.number,
        "checkpoint_dir": _CHECKPOINTS,
        "gpus": len(attempt.devices),
    }
    line = program.line(params, builtins)
    if line is None:
        return None
    variables = _environment(number, params, attempt) if program.argv else ()
    return " \\\n".join([f"cd {shlex.quote(folder)} &&", *variables, line])


def _environment(
    number: int, params: Mapping[str, ParamValue], attempt: StoredAttempt
) -> Iterator[str]:
    """An assignment for each variable."""
    variables = trial_environment(
        params,
        number=number,
        attempt_number=attempt.number,
        seed=attempt.seed,
        checkpoint_dir=_CHECKPOINTS,
    )
    for name, value in variables.items():
        yield f"{name}={shlex.quote(value)}"
