"""How one trial's program is run alone, with the trial's own parameters."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import sqlalchemy as sa

from tuner.config.command_template import TemplateError, render_argv
from tuner.launch.request import trial_environment
from tuner.queries.attempts import StoredAttempt
from tuner.queries.dispatchers import has_our_tables
from tuner.search_spaces import ParamValue
from tuner.search_spaces.strict_yaml import YamlError, read_yaml
from tuner.store.schema.models import DispatcherRow

#: Its own: what the trial itself has saved stays as it is.
_CHECKPOINTS = "checkpoints-alone"


def read_command_alone(
    connection: sa.Connection,
    number: int,
    params: Mapping[str, ParamValue],
    attempt: StoredAttempt | None,
) -> str | None:
    """A line for a shell; None where the tuner did not run the trial.

    Args:
        connection: One that sees a single instant.
        number: Of the trial.
        params: Of the trial, constants included.
        attempt: Its last one.
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
    """The same, from the text of a study file and the folder where it lies."""
    try:
        document = read_yaml(study_file)
    except YamlError:
        return None
    trial = document.get("trial") if isinstance(document, dict) else None
    if not isinstance(trial, dict):
        return None
    argv, function = trial.get("command"), trial.get("function")
    line = None
    if isinstance(argv, list):
        line = _command([str(each) for each in argv], number, params, attempt)
    elif isinstance(function, str) and ":" in function:
        line = _function(function, params)
    return f"cd {shlex.quote(folder)} && {line}" if line else None


def _command(
    argv: list[str], number: int, params: Mapping[str, ParamValue], attempt: StoredAttempt
) -> str | None:
    builtins: dict[str, ParamValue] = {
        "trial_number": number,
        "seed": attempt.seed,
        "attempt_number": attempt.number,
        "checkpoint_dir": _CHECKPOINTS,
        "gpus": len(attempt.devices),
    }
    try:
        words = render_argv(argv, params, builtins)
    except TemplateError:
        return None
    variables = trial_environment(
        params,
        number=number,
        attempt_number=attempt.number,
        seed=attempt.seed,
        checkpoint_dir=_CHECKPOINTS,
    )
    return shlex.join(["env", *(f"{name}={value}" for name, value in variables.items()), *words])


def _function(function: str, params: Mapping[str, ParamValue]) -> str:
    module, _, name = function.partition(":")
    code = f"import tuner, {module}; print({module}.{name}(tuner.current({dict(params)!r})))"
    return shlex.join(["python", "-c", code])
