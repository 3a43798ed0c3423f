"""The keys of a configuration, including the files from which Hydra composes it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuner.config.proposals.ranges import Option
from tuner.search_spaces.strict_yaml import MAX_BYTES, YamlError, read_yaml

_OF_HYDRA = ("hydra", "defaults")
#: In front of a group in the list of defaults.
_KEYWORDS = re.compile(r"^((optional|override)\s+)+")
_PACKAGE = re.compile(r"^#\s*@package\s+(\S+)", re.MULTILINE)
#: Limit for files that include each other; those of Hydra itself are never deeper.
_MOST_FILES = 100


@dataclass(slots=True, kw_only=True)
class Composed:
    """Options in the order in which Hydra merges them."""

    options: list[Option] = field(default_factory=list)
    #: Files that `defaults` names, as they are named there.
    read: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


def compose(document: Mapping[str, object], file: Path) -> Composed:
    """Reads a configuration and the files in its `defaults`, in its folder.

    Args:
        document: The configuration.
        file: Its file.
    """
    composed = Composed()
    _add(composed, document, folder=file.parent, group="", package="")
    return composed


def _add(
    composed: Composed, document: Mapping[str, object], *, folder: Path, group: str, package: str
) -> None:
    for name, key, is_optional in _named_files(document.get("defaults"), group):
        if len(composed.read) >= _MOST_FILES:
            return
        found = _read(folder / f"{name}.yaml")
        if found is None:
            composed.absent += [] if is_optional else [f"{name}.yaml"]
            continue
        composed.read.append(f"{name}.yaml")
        text, included = found
        if header := _PACKAGE.search(text):
            key = "" if header[1] in ("_global_", "_global_._here_") else header[1]
        _add(composed, included, folder=folder, group=name.rpartition("/")[0], package=key)
    # The file's own keys win, as with `_self_` at the end.
    composed.options += _options(document, f"{package}." if package else "")


def _named_files(defaults: object, group: str) -> Iterator[tuple[str, str, bool]]:
    """Files without their ending, from the folder of the main one, and the key of their content."""
    above = f"{group}/" if group else ""
    for entry in defaults if isinstance(defaults, list) else ():
        if isinstance(entry, str) and not entry.startswith("_self_"):
            file = f"{above}{entry}"
            yield file, file.rpartition("/")[0].replace("/", "."), False
        elif isinstance(entry, Mapping):
            for name, choice in entry.items():
                folder, _, package = _KEYWORDS.sub("", str(name)).partition("@")
                # Hydra's own, such as the launcher, is not of the program.
                if isinstance(choice, str) and not folder.startswith(("hydra", "/hydra")):
                    path = folder.lstrip("/") if folder.startswith("/") else f"{above}{folder}"
                    file = f"{path}/{choice.removesuffix('.yaml')}"
                    is_optional = str(name).startswith("optional")
                    yield file, package or path.replace("/", "."), is_optional


def _read(path: Path) -> tuple[str, Mapping[str, object]] | None:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_BYTES)
        document = read_yaml(text)
    except (OSError, UnicodeDecodeError, YamlError):
        return None
    return text, document if isinstance(document, Mapping) else {}


def _options(document: Mapping[str, object], above: str) -> Iterator[Option]:
    for key, value in document.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and name not in _OF_HYDRA:
            yield from _options(value, f"{name}.")
        elif name not in _OF_HYDRA and isinstance(value, str | int | float | bool):
            yield Option(name=name, default=value)
