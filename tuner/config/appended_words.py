"""Appends the words after `--` to a study file's text, so that the executed command is recorded."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence

import yaml

from tuner.search_spaces.strict_yaml import YamlError, read_yaml


def append_words(text: str, words: Sequence[str]) -> str:
    """Appends words to `trial.command` in place, keeping comments and order.

    Args:
        text: Text of a study file.
        words: Arguments of the program.

    Returns:
        The new text; the old one if it has no `trial.command`.
    """
    document = read_yaml(text)
    trial = document.get("trial") if isinstance(document, dict) else None
    if not words or not isinstance(document, dict) or not isinstance(trial, dict):
        return text
    command = trial.get("command")
    if not isinstance(command, list):
        return text
    wanted = {**document, "trial": {**trial, "command": [*command, *words]}}
    written = _written(text, words)
    with contextlib.suppress(YamlError):
        if read_yaml(written) == wanted:
            return written
    # Anchors and aliases: comments are lost, and nothing else.
    return yaml.safe_dump(wanted, sort_keys=False, allow_unicode=True)


def _written(text: str, words: Sequence[str]) -> str:
    node = _child(_child(yaml.compose(text, Loader=yaml.SafeLoader), "trial"), "command")
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        return text
    last = node.value[-1]
    quoted = [json.dumps(word, ensure_ascii=False) for word in words]
    if node.flow_style:
        added = "".join(f", {word}" for word in quoted)
    else:
        # In the column of the dash before the last item.
        column = text.rindex("-", 0, last.start_mark.index) - _begin_of_line(text, last)
        added = "".join(f"\n{' ' * column}- {word}" for word in quoted)
    end = last.end_mark.index
    return text[:end] + added + text[end:]


def _begin_of_line(text: str, node: yaml.Node) -> int:
    return text.rfind("\n", 0, node.start_mark.index) + 1


def _child(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for name, value in node.value if name.value == key), None)
    return None
