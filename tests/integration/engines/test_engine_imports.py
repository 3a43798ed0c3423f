"""An engine's own package is imported when it is used, and not before."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from tuner.config.sections.engine import EngineConfig
from tuner.engines.registry import open_engine

settings = {
    "kubernetes": {"kubernetes": {"image": "registry.example/me/train"}},
    "ray": {},
    "slurm": {},
    "ssh": {"ssh": {"hosts": ["gpu01"]}},
}
engine = open_engine(EngineConfig(name=sys.argv[1], **settings[sys.argv[1]]))
assert engine.name == sys.argv[1]
print(*sorted({"ray", "kubernetes"} & set(sys.modules)))
"""


@pytest.mark.parametrize("name", ["kubernetes", "ray", "slurm", "ssh"])
def test_an_engine_that_is_opened_has_imported_no_client(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
