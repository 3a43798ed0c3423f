"""Mistakes in a study file, collected so that the user sees all at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One mistake.

    The sentence starts with the key, unless `problem` names it itself.
    """

    #: Dotted path such as `trial.command[2]`; empty for the file as a whole.
    key: str
    problem: str
    names_key: bool = False
    #: The file of the mistake, if it is not the study file.
    file: str | None = None


class Refusal(ValueError):
    """A violated rule about several keys; the keys are below the rule's."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("; ".join(f"{each.key} {each.problem}" for each in self.mistakes))


def refuse(mistakes: Iterable[Mistake]) -> None:
    """Raises a `Refusal` if there is a mistake."""
    found = tuple(mistakes)
    if found:
        raise Refusal(found)


def join_key(parent: str, key: str) -> str:
    """`trial` and `command[0]` make `trial.command[0]`."""
    separator = "." if parent and key and not key.startswith("[") else ""
    return f"{parent}{separator}{key}"


def to_error(
    mistakes: Sequence[Mistake],
    *,
    file: str | None,
    origins: Mapping[str, str],
    names: Mapping[str, str] | None = None,
) -> ConfigError:
    """One error with a line for each mistake.

    Args:
        mistakes: At least one.
        file: The study file as the user named it.
        origins: Keys set on the command line, with the flag that set each.
        names: Keys that are call arguments, with the argument's name.
    """
    named = [_renamed(each, names or {}) for each in mistakes]
    errors = [_error(each, file=file, origins=origins) for each in named]
    if len(errors) == 1:
        return errors[0]
    return ConfigError("\n".join(str(error) for error in errors))


def _renamed(mistake: Mistake, names: Mapping[str, str]) -> Mistake:
    for key, name in names.items():
        if mistake.key == key or mistake.key.startswith((f"{key}.", f"{key}[")):
            return replace(mistake, key=name + mistake.key.removeprefix(key))
    return mistake


def _error(mistake: Mistake, *, file: str | None, origins: Mapping[str, str]) -> ConfigError:
    place = mistake.file or _flag(mistake, origins) or file
    key = None if mistake.names_key else mistake.key or None
    return ConfigError(mistake.problem, file=place, key=key)


def _flag(mistake: Mistake, origins: Mapping[str, str]) -> str | None:
    key = mistake.key
    for origin, flag in origins.items():
        is_inside = key == origin or key.startswith((f"{origin}.", f"{origin}["))
        # `--set samplr.seed=1` makes an unknown `samplr`, which is above the key that was set.
        is_unknown_above = mistake.names_key and origin.startswith(f"{key}.")
        if is_inside or is_unknown_above:
            return flag
    return None
