"""Names of the output formats of configurations."""

from __future__ import annotations

from enum import Enum


class Format(Enum):
    """A form of text that other programs read."""

    YAML = "yaml"
    JSON = "json"
    ENV = "env"
    ARGS = "args"
    #: The program's own command line.
    COMMAND = "command"
    #: Words of Hydra's command line.
    HYDRA = "hydra"
