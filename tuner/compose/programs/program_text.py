"""Reads the functions that a study names, before or without an import of their modules."""

from __future__ import annotations

from tuner.compose.study_plan import import_path_of
from tuner.config import StudyConfig
from tuner.config.rules import optuna_program_of
from tuner.errors import ConfigError
from tuner.launch.function_source_check import SourceCheck, check_program, check_source
from tuner.search_spaces import DefineByRunSpace, SearchSpace


def check_text(config: StudyConfig) -> list[str]:
    """Checks the source of the study's functions.

    Returns:
        Notes to show: work that an import does.

    Raises:
        ConfigError: If a trial could not call one of them.
    """
    found = _checks(config)
    for each in found:
        if each.problem:
            raise ConfigError(each.problem, file=config.file)
    return [each.remark for each in found if each.remark]


def import_remarks(config: StudyConfig) -> list[str]:
    """Work that the import of the study's modules does, as text.

    Raises:
        ConfigError: If the program of `train.py:study.optimize` cannot be read. Whether a module
            can be imported is known once it was.
    """
    if optuna_program_of(config.trial.function or "") is not None:
        return check_text(config)
    return [each.remark for each in _checks(config) if each.remark]


def _checks(config: StudyConfig) -> list[SourceCheck]:
    space = config.search_space
    names = space.names if isinstance(space, SearchSpace) else ()
    folders = import_path_of(config)
    key, function = "trial.function", config.trial.function
    found: list[SourceCheck] = []
    if function is not None and (program := optuna_program_of(function)) is not None:
        found.append(check_program(key, function, config.folder / program))
    elif function is not None:
        found.append(check_source(key, function, folders, names))
    if isinstance(space, DefineByRunSpace):
        found.append(check_source("search_space", space.target, folders, names))
    return found
