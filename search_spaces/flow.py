"""Values as YAML on one line, for messages that show a line to write."""

from __future__ import annotations

import yaml

from tuner.search_spaces.strict_yaml import EXPONENT_WITHOUT_POINT


class _Dumper(yaml.SafeDumper):
    """Quotes texts such as `1e3`, which a study file reads as numbers."""


_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", EXPONENT_WITHOUT_POINT, list("-+0123456789")
)


def flow(value: object) -> str:
    """A value as YAML on one line, such as `{type: float, low: 0.1, high: 1.0}`."""
    text = yaml.dump(
        value,
        Dumper=_Dumper,
        default_flow_style=True,
        width=10_000_000,
        sort_keys=False,
        allow_unicode=True,
    )
    return str(text).removesuffix("\n").removesuffix("\n...")


def line(name: str, value: object) -> str:
    """A key and its value as YAML on one line, without the braces around them."""
    return flow({name: value})[1:-1]
