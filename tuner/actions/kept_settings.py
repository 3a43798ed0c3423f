"""What `tuner set` keeps for the next start of a study that nobody works on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from tuner.config import StudyConfig
from tuner.domain.messages import Json
from tuner.store.records.commands import Command


def file_values(config: StudyConfig | None, keys: Iterable[str]) -> dict[str, Json]:
    """What a study file and the flags of a command line give for keys of `tuner set`.

    Args:
        config: The study; None where only its database is known, which gives nothing.
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
    """Leaves out what the study file or the command line has changed since it was asked for.

    Args:
        kept: What was asked for, oldest first.
        config: The study as it is started now.
        say: Shows users which of two values counts.
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
