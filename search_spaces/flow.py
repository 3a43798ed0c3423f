"""Values as YAML on one line, for messages that show a line to write."""

from __future__ import annotations

import yaml


def flow(value: object) -> str:
    """A value as YAML on one line, such as `{type: float, low: 0.1, high: 1.0}`."""
    text = yaml.safe_dump(
        value, default_flow_style=True, width=10_000_000, sort_keys=False, allow_unicode=True
    )
    return str(text).removesuffix("\n").removesuffix("\n...")


def line(name: str, value: object) -> str:
    """A key and its value as YAML on one line, without the braces around them."""
    return flow({name: value})[1:-1]
