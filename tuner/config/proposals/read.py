"""Reads the source of `tuner init --from`: a W&B sweep, a Python script or a configuration."""

from __future__ import annotations

import ast
import os
import warnings
from collections.abc import Mapping
from pathlib import Path

from tuner.config.proposals.configuration import propose_from_configuration
from tuner.config.proposals.own_search import own_search
from tuner.config.proposals.printed_lines import PrintedResult, printed_result
from tuner.config.proposals.proposal import Proposal
from tuner.config.proposals.sweeps.wandb_sweep import is_sweep, propose_from_sweep
from tuner.config.proposals.train_script import (
    hydra_config,
    omegaconf_file,
    propose_from_script,
)
from tuner.config.proposals.typed_command import TypedCommand, with_arguments
from tuner.errors import ConfigError
from tuner.search_spaces.strict_yaml import MAX_BYTES, YamlError, read_yaml

NOTEBOOK = (
    "is a notebook. Tune a function in the notebook itself, tuner.tune(train, ...), or convert it: "
    "jupyter nbconvert --to script"
)


def propose(source: Path, folder: Path, typed: TypedCommand | None = None) -> Proposal:
    """Proposes a study.

    Args:
        source: A `.py` script, which is read and not run, or a `.yaml` file.
        folder: Folder of the study file, in which the command starts.
        typed: The command line that starts the script, if a person typed it.

    Raises:
        ConfigError: If the file cannot be read, or has nothing to tune.
    """
    if source.suffix == ".ipynb":
        raise ConfigError(NOTEBOOK, file=str(source))
    if source.suffix != ".py":
        return _from_yaml(source, program=None)
    tree = _parse(source)
    if problem := own_search(tree):
        raise ConfigError(problem, file=str(source))
    program = Path(os.path.relpath(source, folder)).as_posix()
    config = hydra_config(tree, source) or omegaconf_file(tree, source)
    if config is None:
        given = typed.flags if typed else frozenset()
        proposal = propose_from_script(tree, source, program, given)
    else:
        proposal = _from_yaml(config, program, printed_result(tree))
    return with_arguments(proposal, typed) if typed else proposal


def _from_yaml(source: Path, program: str | None, result: PrintedResult | None = None) -> Proposal:
    try:
        document = read_yaml(_text(source))
    except YamlError as error:
        raise ConfigError(str(error), file=str(source)) from error
    if not isinstance(document, Mapping):
        problem = "must be a W&B sweep, the configuration of a program, or a Python script."
        raise ConfigError(problem, file=str(source))
    if is_sweep(document):
        return propose_from_sweep(document, source)
    if "study" in document and "trial" in document:
        problem = "is a study file already. Start it: python -m tuner.run"
        raise ConfigError(problem, file=str(source))
    return propose_from_configuration(document, source, program, result)


def _parse(source: Path) -> ast.Module:
    text = _text(source)
    try:
        with warnings.catch_warnings():
            # Invalid escapes are the script's own affair.
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        problem = f"line {error.lineno}: is not valid Python: {error.msg}."
    except (ValueError, RecursionError, MemoryError) as error:
        problem = f"cannot be read as Python: {error}."
    raise ConfigError(problem, file=str(source))


def _text(source: Path) -> str:
    try:
        with source.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ConfigError(f"is larger than {MAX_BYTES:,} bytes.", file=str(source))
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not text in UTF-8 ({error.reason}).", file=str(source)) from error
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}."
        raise ConfigError(problem, file=str(source)) from error
