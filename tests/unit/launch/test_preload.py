"""What is imported ahead of the fork, and what is not worth it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tuner.launch.preload import _needs_dynamo


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch\nsgd = torch.optim.SGD\n", True),
        ("import torch\nprint(torch.zeros(1))\n", False),
    ],
    ids=["optimizer", "none"],
)
def test_needs_dynamo_reads_the_module_s_text(
    text: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "users_module.py"
    file.write_text(text)
    module = ModuleType("users_module")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "users_module", module)
    assert _needs_dynamo("users_module") is expected


def test_needs_dynamo_of_a_module_that_failed_to_import_is_false() -> None:
    assert not _needs_dynamo("no.such.module")
