"""The words of commands about one trial: `[STUDY] TRIAL`."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.errors import ConfigError


def read_words(words: Sequence[str], command: str) -> tuple[str | None, int]:
    """Reads the study, if one is named, and the number of the trial, in either order.

    Args:
        words: The arguments.
        command: Such as `tuner why`, for the message.

    Raises:
        ConfigError: If the words are something else.
    """
    match list(words):
        case [number] if number.isdecimal():
            return None, int(number)
        case [source, number] if number.isdecimal():
            return source, int(number)
        case [number, source] if number.isdecimal():
            return source, int(number)
    problem = f"is given {' '.join(words)!r}, but takes a study and the number of a trial, "
    raise ConfigError(f"{problem}such as study.yaml 17.", key=command)
