"""Reads a study file, lays the command line over it, and checks the whole."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.config.appended_words import append_words
from tuner.config.study import Source, StudyConfig, validate_study
from tuner.errors import ConfigError
from tuner.search_spaces.strict_yaml import MAX_BYTES, YamlError, read_yaml

_SQLITE = b"SQLite format 3\0"
_SHORT_FORMS = ("sampler", "pruner")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """The file's values, and those set on the command line."""

    file: str
    values: dict[str, object]
    origins: dict[str, str] = field(default_factory=dict)


def load_study_file(
    path: Path,
    *,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str],
    study: str | None = None,
    trials: int | None = None,
    extra_arguments: Sequence[str] = (),
    home: Path | None = None,
) -> StudyConfig:
    """Reads and checks a study file.

    Args:
        path: The study file.
        overrides: `key=value` of each `--set`; the value is YAML.
        environ: Values for `${VARIABLE}` in `storage`.
        study: `--study`, which overrides the file's name.
        trials: `--trials`, which overrides the file's budget.
        extra_arguments: The words after `--`, appended to the trial's command.
        home: Folder of logs and checkpoints. None: that of the file.

    Raises:
        ConfigError: With a line for each mistake.
    """
    text = _read(path)
    given = _Values(file=str(path), values=parse_study(text, str(path)))
    _refuse_sweep(given.values, path)
    for override in overrides:
        _apply_override(given, override)
    if study is not None:
        _set(given, "study", study, flag="--study")
    if trials is not None:
        _set(given, "budget.trials", trials, flag="--trials")
    _append(given, extra_arguments)
    text = append_words(text, extra_arguments)
    source = Source(
        path=path.resolve(),
        file=str(path),
        text=text,
        home=home.resolve() if home is not None else None,
        overrides=tuple(overrides),
    )
    return validate_study(given.values, source=source, environ=environ, origins=given.origins)


def _refuse_sweep(values: Mapping[str, object], path: Path) -> None:
    if "parameters" not in values or "study" in values:
        return
    from tuner.config.proposals.sweeps.wandb_sweep import is_sweep

    if is_sweep(values):
        target = path.with_name("tuned.yaml" if path.name == "study.yaml" else "study.yaml")
        raise ConfigError(
            f"is a sweep of W&B. Write its study file: tuner init {target} --from {path}",
            file=str(path),
        )


def _read(path: Path) -> str:
    if path.suffix == ".ipynb":
        problem = (
            "is a notebook, not a study file. Tune a function in the notebook itself: "
            "tuner.tune(train, ...)"
        )
        raise ConfigError(problem, file=str(path))
    if path.suffix == ".py":
        problem = (
            "is a Python program, not a study file. If it calls Optuna's study.optimize, `tuner "
            f"run {path}` runs it and writes its study file, {path.stem}.study.yaml; use that file "
            f"here. For other programs: tuner init --from {path}"
        )
        raise ConfigError(problem, file=str(path))
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if content.startswith(_SQLITE):
            problem = "is a database. Give the study file; tuner status and the others take both."
            raise ConfigError(problem, file=str(path))
        if len(content) > MAX_BYTES:
            problem = f"is larger than {MAX_BYTES:,} bytes, which no study file needs to be."
            raise ConfigError(problem, file=str(path))
        return content.decode("utf-8")
    except FileNotFoundError:
        problem = f"there is no such file. {_other_file(path)}"
    except IsADirectoryError:
        problem = f"is a folder. Give the study file in it, for example {path / 'study.yaml'}."
    except UnicodeDecodeError as error:
        problem = f"is not text in UTF-8 ({error.reason} at byte {error.start}). Save it as UTF-8."
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}."
    raise ConfigError(problem, file=str(path))


def _other_file(path: Path) -> str:
    """A study file of a similar name, or how to write one."""
    folder = path.parent
    files = sorted(folder.glob("*.y*ml")) if folder.is_dir() else []
    by_stem = {each.stem: each for each in files}
    close = difflib.get_close_matches(path.stem, list(by_stem), n=1)
    if close:
        return f"Did you mean {by_stem[close[0]]}?"
    return "Give the path of a study file, or write one: tuner init"


def parse_study(text: str, file: str) -> dict[str, object]:
    """Parses the text of a study file.

    Raises:
        ConfigError: If it is no YAML mapping.
    """
    try:
        document = read_yaml(text)
    except YamlError as error:
        raise ConfigError(str(error), file=file) from error
    if document is None:
        problem = "the file is empty. Write a study, or let `tuner init` write one to start from."
        raise ConfigError(problem, file=file)
    if not isinstance(document, dict):
        kind = "list" if isinstance(document, list) else "single value"
        problem = f"holds a {kind}, but must be a mapping with keys such as study: and trial:."
        raise ConfigError(problem, file=file)
    return document


def _apply_override(given: _Values, override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not all(key.split(".")):
        problem = f"is given {override!r}, but takes KEY=VALUE, such as sampler.seed=1."
        raise ConfigError(problem, key="--set")
    try:
        value = read_yaml(text)
    except YamlError as error:
        raise ConfigError(f"is given a value that is {error}", file="--set", key=key) from error
    _set(given, key, value, flag="--set")


def _set(given: _Values, key: str, value: object, *, flag: str) -> None:
    parents, last = key.split(".")[:-1], key.split(".")[-1]
    mapping: MutableMapping[str, object] = given.values
    for depth, part in enumerate(parents, start=1):
        mapping = _child(mapping, part, flag=flag, key=".".join(parents[:depth]), target=key)
    mapping[last] = value
    given.origins[key] = flag


def _child(
    mapping: MutableMapping[str, object], part: str, *, flag: str, key: str, target: str
) -> MutableMapping[str, object]:
    child = mapping.get(part)
    if child is None:
        child = {}
    elif isinstance(child, str) and key in _SHORT_FORMS:
        child = {"name": child}
    if not isinstance(child, dict):
        problem = f"cannot be set, because {key} is {child!r}, which has no keys. Set {key} itself."
        raise ConfigError(problem, file=flag, key=target)
    mapping[part] = child
    return child


def _append(given: _Values, words: Sequence[str]) -> None:
    trial = given.values.get("trial")
    if not words or not isinstance(trial, dict):
        return
    command = trial.get("command")
    if isinstance(command, list):
        trial["command"] = [*command, *words]
    elif command is None:
        problem = (
            f"the arguments after -- ({' '.join(words)}) are for the program of trial.command, and "
            "this study has none: its trials are calls of trial.function. Write such values into "
            "search_space as constants (data: /mnt/imagenet), which the function reads from its "
            "parameters, or into trial.env."
        )
        raise ConfigError(problem, file=given.file)
