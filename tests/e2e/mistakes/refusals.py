"""A start that refuses what it is given: its message alone, its exit code, and nothing else."""

from __future__ import annotations

from tests.e2e.study_folder import Ended
from tuner.errors import EXIT_BAD_INPUT

DEVICES_LINE = "devices: cpu:0, cpu:1\n"
ECHO = {"command": ["sh", "-c", "echo '{{\"value\": {x}}}'"]}


def check_refused(ended: Ended, message: str, *, out: str = "") -> None:
    assert (ended.code, ended.err, ended.out) == (EXIT_BAD_INPUT, message + "\n", out)
