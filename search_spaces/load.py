"""Finds a search space: in the study file, in a file of its own, ready-made, or a function."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path, PurePosixPath

from tuner.search_spaces.schema import parse_space
from tuner.search_spaces.space import AnySpace, DefineByRunSpace, SearchSpace, SpaceError, nearest
from tuner.search_spaces.strict_yaml import MAX_BYTES, YamlError, read_yaml

_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_EXAMPLE = "such as search_space: {lr: {type: float, low: 1.0e-4, high: 0.1, log: true}}"
_FORMS = "a mapping of parameters, the path of a .yaml file, or module:function"


def load_space(source: object, base_dir: Path) -> AnySpace:
    """Loads a space from the value of `search_space` in a study file.

    Args:
        source: A mapping; the path of a .yaml file, or a ready-made one such as
            `search_spaces/mlp.yaml`; or `module:function`, which is not imported.
        base_dir: Folder of the study file. Relative paths start there.

    Raises:
        SpaceError: If the space does not exist or has mistakes.
    """
    if isinstance(source, Mapping):
        return parse_space(source)
    if not isinstance(source, str):
        raise SpaceError(f"is {source!r:.200}, but must be {_FORMS}, {_EXAMPLE}")
    if source.endswith((".yaml", ".yml")):
        return _load_named(source, base_dir)
    if _TARGET.fullmatch(source):
        module, _, function = source.partition(":")
        return DefineByRunSpace(module=module, function=function)
    raise SpaceError(f"is {source!r}, but must be {_FORMS} (for example spaces:my_space).")


def ready_made() -> tuple[str, ...]:
    """Returns the names of the ready-made spaces, such as `mlp`."""
    files = resources.files(__package__).iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if _is_yaml(file.name)))


def load_ready_made(name: str) -> SearchSpace:
    """Loads a ready-made space by its name."""
    text = (resources.files(__package__) / f"{name}.yaml").read_text(encoding="utf-8")
    return _parse_file(text, file=f"search_spaces/{name}.yaml")


def _is_yaml(name: str) -> bool:
    return name.endswith(".yaml")


def _load_named(source: str, base_dir: Path) -> SearchSpace:
    path = base_dir / source
    if os.path.isfile(path):  # False where no file can have this name.
        return _parse_file(_read(path, source), file=source)
    name = _ready_made_name(source)
    if name in ready_made():
        return load_ready_made(name)
    raise SpaceError(f"is {source!r}, but there is no file {path}. {_suggestion(name)}")


def _ready_made_name(source: str) -> str:
    path = PurePosixPath(source)
    return path.stem if str(path.parent) in ("search_spaces", ".") else source


def _suggestion(name: str) -> str:
    meant = nearest(name, ready_made())
    if meant:
        return f"Did you mean the ready-made 'search_spaces/{meant}.yaml'?"
    return f"Ready-made spaces are {', '.join(f'{each}.yaml' for each in ready_made())}."


def _read(path: Path, source: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            problem = (
                f"is {source!r}, which is larger than {MAX_BYTES:,} bytes. Write fewer values."
            )
            raise SpaceError(problem)
        return content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpaceError(f"is {source!r}, but it cannot be read: {error}.") from error


def _parse_file(text: str, *, file: str) -> SearchSpace:
    try:
        document = read_yaml(text)
    except YamlError as error:
        raise SpaceError(str(error), file=file) from error
    if not isinstance(document, Mapping):
        raise SpaceError("must be a mapping of parameters, one `name: ...` per line.", file=file)
    try:
        return parse_space(document)
    except SpaceError as mistake:
        others = [SpaceError(each.problem, key=each.key, file=file) for each in mistake.others]
        raise SpaceError(mistake.problem, key=mistake.key, file=file, others=others) from mistake
