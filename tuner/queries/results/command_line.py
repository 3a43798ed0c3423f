"""Command lines that run a study's program with given parameters."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa
import yaml

from tuner.config.notation.command_template import TemplateError, render_argv
from tuner.config.rules import optuna_program_of
from tuner.launch.stored_function import MODULE_PREFIX
from tuner.search_spaces.strict_yaml import YamlError, read_yaml
from tuner.search_spaces.values import ParamValue, format_value
from tuner.store.schema.models import AttemptRow, DispatcherRow

#: Words that Hydra accepts unquoted.
_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program of a study: a function, or a command with placeholders."""

    function: str = ""
    argv: tuple[str, ...] = ()

    def line(
        self, params: Mapping[str, ParamValue], builtins: Mapping[str, ParamValue]
    ) -> str | None:
        """The line for a shell that runs the program.

        Args:
            params: All parameters by name.
            builtins: Values of the other places of a command, such as `seed`.

        Returns:
            The line; None if a command cannot be filled.
        """
        if program := optuna_program_of(self.function):
            code = (
                "from tuner.frameworks.optuna_programs.alone import evaluate; "
                f"print(evaluate({_literal(program)}, {_literal(params)}))"
            )
            return shlex.join(["python", "-c", code])
        if self.function.startswith(MODULE_PREFIX):
            return None  # A function of tuner.tune: it is stored only while its study runs.
        if self.function:
            module, _, name = self.function.partition(":")
            params_text = _literal(params)
            code = f"import tuner, {module}; print({module}.{name}(tuner.current({params_text})))"
            return shlex.join(["python", "-c", code])
        try:
            return shlex.join(render_argv(self.argv, params, builtins))
        except TemplateError:
            return None

    @property
    def has_folder(self) -> bool:
        """Whether the command contains a folder for its files."""
        return any("{checkpoint_dir}" in word for word in self.argv)


def _literal(value: object) -> str:
    """Python for a value, with double quotes: in a shell it is between single ones."""
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case Mapping():
            items = (f"{_literal(key)}: {_literal(each)}" for key, each in value.items())
            return f"{{{', '.join(items)}}}"
        case list() | tuple():
            return f"[{', '.join(map(_literal, value))}]"
        case _:
            return repr(value)


def read_program(study_file: str) -> Program | None:
    """The program in the text of a study file; None if it has none."""
    try:
        document = read_yaml(study_file)
    except YamlError:
        return None
    trial = document.get("trial") if isinstance(document, dict) else None
    if not isinstance(trial, dict):
        return None
    argv, function = trial.get("command"), trial.get("function")
    if isinstance(argv, list):
        return Program(argv=tuple(str(each) for each in argv))
    if isinstance(function, str) and ":" in function:
        return Program(function=function)
    return None


def program_of_trial(connection: sa.Connection, trial_id: int) -> Program | None:
    """The program of a trial's last attempt; None if the tuner has not run the trial."""
    if not sa.inspect(connection).has_table(DispatcherRow.__tablename__):
        return None
    query = (
        sa.select(DispatcherRow.study_file)
        .join(AttemptRow, AttemptRow.dispatcher_id == DispatcherRow.id)
        .where(AttemptRow.trial_id == trial_id)
        .order_by(AttemptRow.number.desc())
        .limit(1)
    )
    study_file = connection.execute(query).scalar()
    return None if study_file is None else read_program(study_file)


def hydra_words(params: Mapping[str, ParamValue]) -> str:
    """`key=value` overrides for Hydra's command line, quoted for a shell.

    The grammar of values is that of https://hydra.cc/docs/advanced/override_grammar/basic/: text
    that would be parsed as another type is quoted.
    """
    return shlex.join([f"{name}={_hydra_value(value)}" for name, value in params.items()])


def _hydra_value(value: ParamValue) -> str:
    if not isinstance(value, str):
        return format_value(value)
    is_plain = _PLAIN.fullmatch(value) and isinstance(yaml.safe_load(value), str)
    return value if is_plain else json.dumps(value, ensure_ascii=False)
