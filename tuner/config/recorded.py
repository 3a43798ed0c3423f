"""The recorded form of a study file, without secrets.

Values of `trial.env` are often tokens, and URLs may contain passwords. A database has more readers
than a study file has, so names are stored and values are not.
"""

from __future__ import annotations

import contextlib

import yaml

from tuner.config.storage_url import without_passwords
from tuner.search_spaces.strict_yaml import YamlError, read_yaml

MASK = "***"


def recorded_text(text: str) -> str:
    """The text of a study file, with each value of `trial.env` as `***`."""
    # An older tuner has read what this one refuses.
    with contextlib.suppress(YamlError):
        text = _without_env_values(text)
    return without_passwords(text)


def _without_env_values(text: str) -> str:
    document = read_yaml(text)
    masked = _masked(document)
    if masked == document:
        return text
    replaced = _replaced(text)
    with contextlib.suppress(YamlError):
        if read_yaml(replaced) == masked:
            return replaced
    # Anchors and aliases: comments are lost, and nothing else.
    return yaml.safe_dump(masked, sort_keys=False, allow_unicode=True)


def _masked(document: object) -> object:
    trial = document.get("trial") if isinstance(document, dict) else None
    env = trial.get("env") if isinstance(trial, dict) else None
    if not isinstance(document, dict) or not isinstance(trial, dict) or not isinstance(env, dict):
        return document
    return {**document, "trial": {**trial, "env": dict.fromkeys(env, MASK)}}


def _replaced(text: str) -> str:
    """Replaces values in place, keeping comments and order."""
    env = _child(_child(yaml.compose(text, Loader=yaml.SafeLoader), "trial"), "env")
    values = [value for _, value in env.value] if isinstance(env, yaml.MappingNode) else []
    for value in sorted(values, key=lambda node: node.start_mark.index, reverse=True):
        begin, end = value.start_mark.index, value.end_mark.index
        written = text[begin:end]
        # A block of lines ends at the next key.
        blank = written[len(written.rstrip()) :]
        text = f'{text[:begin]}"{MASK}"{blank}{text[end:]}'
    return text


def _child(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for name, value in node.value if name.value == key), None)
    return None
