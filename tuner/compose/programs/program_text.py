"""Reads the functions that a study names, before or without an import of their modules."""

from __future__ import annotations

from tuner.compose.study_plan import import_path_of
from tuner.config import StudyConfig
from tuner.errors import ConfigError
from tuner.launch.function_source_check import SourceCheck, check_source
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
    """Work that the import of the study's modules does, as text."""
    return [each.remark for each in _checks(config) if each.remark]


def _checks(config: StudyConfig) -> list[SourceCheck]:
    space = config.search_space
    names = space.names if isinstance(space, SearchSpace) else ()
    folders = import_path_of(config)
    named: list[tuple[str, str]] = []
    if config.trial.function is not None:
        named.append(("trial.function", config.trial.function))
    if isinstance(space, DefineByRunSpace):
        named.append(("search_space", space.target))
    return [check_source(key, name, folders, names) for key, name in named]
