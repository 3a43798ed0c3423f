"""The best configurations as text: YAML, JSON, variables of a shell, arguments, command lines."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict

import yaml

from tuner.errors import StoreError
from tuner.launch.request import trial_environment
from tuner.queries.results.best import BestConfiguration
from tuner.queries.results.command_line import hydra_words
from tuner.queries.results.format_names import Format
from tuner.search_spaces.values import format_value


class _ShellLine(str):
    """Is shown so that it can be copied to a shell: without YAML's quotes and line breaks."""


class _Dumper(yaml.SafeDumper):
    pass


def _represent_shell_line(dumper: yaml.SafeDumper, line: _ShellLine) -> yaml.ScalarNode:
    style = "|" if "'" in line or '"' in line else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(line), style=style)


_Dumper.add_representer(_ShellLine, _represent_shell_line)


def render(configurations: list[BestConfiguration], form: Format) -> str:
    """Text for a terminal, a file or a shell."""
    match form:
        case Format.JSON:
            return json.dumps([asdict(each) for each in configurations], indent=2)
        case Format.YAML:
            plain = [json.loads(json.dumps(asdict(each))) for each in configurations]
            for each in plain:
                if each["command"] is not None:
                    each["command"] = _ShellLine(each["command"])
            return yaml.dump(
                plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**9
            ).rstrip()
        case Format.ENV:
            return "\n\n".join(_env(each) for each in configurations)
        case Format.ARGS:
            return "\n".join(_args(each) for each in configurations)
        case Format.HYDRA:
            return "\n".join(hydra_words(each.params) for each in configurations)
        case Format.COMMAND:
            return "\n".join(_command(each) for each in configurations)


def _env(configuration: BestConfiguration) -> str:
    variables = trial_environment(
        configuration.params,
        number=configuration.trial_number,
        attempt_number=0,
        seed=configuration.seed,
        checkpoint_dir="",
    )
    shown = {k: v for k, v in variables.items() if k.startswith("TUNER_PARAM_")}
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in shown.items())


def _command(configuration: BestConfiguration) -> str:
    if configuration.command is None:
        raise StoreError(
            f"The tuner has not run study {configuration.study!r}, or its trials call a function "
            "that was passed to tuner.tune, so its command is not known. Use another format: "
            "--format args."
        )
    return configuration.command


def _args(configuration: BestConfiguration) -> str:
    words = [f"--{k}={format_value(v)}" for k, v in configuration.params.items()]
    return shlex.join(words)
