"""Configurations that users write down: as text, in YAML, JSON or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import ConfigError
from tuner.queries.trials.listing import PARAM_PREFIX
from tuner.search_spaces.strict_yaml import YamlError, read_yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A configuration as written, and its source."""

    #: `best.csv line 3`, `--params`.
    place: str
    params: Mapping[str, object]
    #: Whether every value is text, as CSV has it.
    is_text: bool = False


def read_given(words: Sequence[str]) -> list[Given]:
    """Reads each `--params`: a mapping or a list of mappings, as text or as a file.

    Output of `tuner best` and `tuner trials` in YAML, JSON or CSV is such a file.

    Raises:
        ConfigError: If one is neither, or contains no configuration.
    """
    given = [each for word in words for each in _read(word)]
    if not given:
        raise ConfigError("holds no configuration. Give at least one.", key="--params")
    return given


def _read(word: str) -> list[Given]:
    if word.lstrip().startswith(("{", "[")):
        return list(_from_document(_parse(word, "--params"), "--params"))
    path = Path(word)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        problem = (
            f"is {word!r}, which cannot be read: {reason}. Give a configuration such as "
            "'{lr: 0.1}', or a .yaml, .json or .csv file."
        )
        raise ConfigError(problem, key="--params") from error
    if path.suffix == ".csv":
        return list(_from_csv(text, word))
    return list(_from_document(_parse(text, word), word))


def _parse(text: str, place: str) -> object:
    try:
        return read_yaml(text)
    except YamlError as error:
        raise ConfigError(f"is not to be read: {error}", key=place) from error


def _from_document(document: object, place: str) -> Iterator[Given]:
    items = document if isinstance(document, list) else [document]
    for number, item in enumerate(items, start=1):
        where = f"{place}, configuration {number}" if len(items) > 1 else place
        if not isinstance(item, Mapping):
            problem = f"is {item!r}, but must be parameters with their values, such as {{lr: 0.1}}."
            raise ConfigError(problem, key=where)
        # So do `tuner best` and `tuner trials` print it; no parameter has a mapping for a value.
        inside = item.get("params")
        yield Given(place=where, params=inside if isinstance(inside, Mapping) else item)


def _from_csv(text: str, place: str) -> Iterator[Given]:
    reader = csv.DictReader(io.StringIO(text))
    names = _csv_names(reader.fieldnames or ())
    for row in reader:
        if None in row:
            problem = f"line {reader.line_num} has more cells than there are columns."
            raise ConfigError(problem, file=place)
        cells = {name: row[column] for column, name in names.items() if row[column]}
        yield Given(place=f"{place} line {reader.line_num}", params=cells, is_text=True)


def _csv_names(columns: Sequence[str]) -> dict[str, str]:
    """For output of `tuner trials --csv`, only the columns of parameters."""
    marked = {each: each.removeprefix(PARAM_PREFIX) for each in columns}
    if any(column != name for column, name in marked.items()):
        return {column: name for column, name in marked.items() if column != name}
    return marked
