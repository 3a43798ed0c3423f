"""Settings of `tuner set` that are kept for the next start, when no dispatcher runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from tuner.config import StudyConfig
from tuner.domain.messages import Json
from tuner.store.records.commands import Command


def file_values(config: StudyConfig | None, keys: Iterable[str]) -> dict[str, Json]:
    """The values of a study file and command line flags for keys of `tuner set`.

    Args:
        config: The study; None if only its database is known, which has none.
        keys: Such as `budget.trials` and `devices`.
    """
    if config is None:
        return {}
    budget = config.budget.model_dump(by_alias=True)
    values = {f"budget.{name}": value for name, value in budget.items()}
    values["devices"] = repr(config.devices)
    values["priority"] = config.priority
    return {key: values[key] for key in keys}


def without_outdated(
    kept: Iterable[Command], config: StudyConfig, say: Callable[[str], None]
) -> list[Command]:
    """Drops kept settings that the study file or the command line has changed since.

    Args:
        kept: The kept commands, oldest first.
        config: The study as it is started now.
        say: Shows which of two values applies.
    """
    found = []
    for command in kept:
        before = command.kept_over or {}
        now = file_values(config, command.arguments)
        changed = [key for key, value in before.items() if key in now and now[key] != value]
        for key in changed:
            say(_outdated(command, key, now))
        left = {key: value for key, value in command.arguments.items() if key not in changed}
        if left:
            found.append(replace(command, arguments=left))
    return found


def _outdated(command: Command, key: str, now: Mapping[str, Json]) -> str:
    value = "" if key == "devices" else f" to {now[key]}"
    return (
        f"{key}={command.arguments[key]} was kept for this start (asked for by "
        f"{command.asked_by}), but the study file or this command line has changed {key}{value} "
        f"since. That counts. To set it now: tuner set {key}={command.arguments[key]}"
    )
