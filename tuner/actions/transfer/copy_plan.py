"""The plan of `tuner copy`: source, target and space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.actions.transfer.copy import Keep, NewSpace
from tuner.config import StudyConfig, load_study_file
from tuner.errors import ConfigError
from tuner.queries.locate import Place, find_place, place_of
from tuner.search_spaces import AnySpace, SpaceError, load_space
from tuner.search_spaces.strict_yaml import YamlError, read_yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """Source, target and changes of a copy."""

    origin: Place
    target: Place
    space: NewSpace
    #: The study file of the new study, under its new name.
    config: StudyConfig | None


def plan_copy(
    source: str,
    study: str | None,
    new_name: str,
    space_file: Path | None,
    to_storage: str | None,
    environ: Mapping[str, str],
) -> CopyPlan:
    """Plans a copy.

    Args:
        source: The earlier study's database, or a study file.
        study: Name of the study in it.
        new_name: Name of the new study.
        space_file: A study file, or the file of a space; None for the space of `source`.
        to_storage: Another database; None for the study file's.
        environ: Values for `${VARIABLE}` in URLs.

    Raises:
        TunerError: If a file or a URL is wrong.
    """
    origin = find_place(source, study, environ)
    config_file = origin.config.path if origin.config else None
    space: NewSpace = Keep.SPACE
    if space_file is not None and _is_study_file(space_file):
        config_file = space_file
    elif space_file is not None:
        space = _load_space(space_file)
    config = load_study_file(config_file, environ=environ, study=new_name) if config_file else None
    if config is not None and space is Keep.SPACE:
        space = config.search_space
    target = _target(origin, config, new_name, to_storage, environ)
    return CopyPlan(origin=origin, target=target, space=space, config=config)


def _target(
    origin: Place,
    config: StudyConfig | None,
    new_name: str,
    to_storage: str | None,
    environ: Mapping[str, str],
) -> Place:
    if to_storage is not None:
        return find_place(to_storage, new_name, environ, is_new=True)
    if config is not None:
        return place_of(config)
    return replace(origin, study=new_name)


def _is_study_file(path: Path) -> bool:
    document = _read(path)
    return isinstance(document, Mapping) and {"study", "trial"} <= document.keys()


def _load_space(path: Path) -> AnySpace:
    try:
        return load_space(_read(path), path.resolve().parent)
    except SpaceError as error:
        lines = [error, *error.others]
        text = "\n".join(f"{path}: {each}" for each in lines)
        raise ConfigError(text) from error


def _read(path: Path) -> object:
    try:
        return read_yaml(path.read_text(encoding="utf-8"))
    except YamlError as error:
        raise ConfigError(str(error), file=str(path)) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        problem = f"cannot be read: {reason}. Give a study file, or the .yaml file of a space."
        raise ConfigError(problem, file=str(path)) from error
