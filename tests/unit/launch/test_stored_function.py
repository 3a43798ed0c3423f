"""A stored function is loaded only if it is the one that was written, and goes when unused."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

from tuner.errors import LaunchError
from tuner.launch.stored_function import Stored, StoredFunction, pickled, store


def make(add: int = 1) -> StoredFunction:
    return pickled(lambda number: number + add, "lambda number: number + add\n")


def module_of(stored: Stored) -> ModuleType:
    (path,) = stored.folder.glob("*.py")
    spec = importlib.util.spec_from_file_location("stored", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pickle_of(stored: Stored) -> Path:
    (path,) = stored.folder.glob("*.pkl")
    return path


def test_function_is_loaded_with_what_it_closes_over(tmp_path: Path) -> None:
    stored = store(make(add=41), tmp_path)
    assert module_of(stored).function(1) == 42
    os.close(stored.fd)


def test_same_text_has_the_same_name(tmp_path: Path) -> None:
    assert make(add=1).target == make(add=2).target
    other = pickled(lambda number: number, "lambda number: number\n")
    assert other.target != make().target


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    stored = store(make(), tmp_path)
    pickle_of(stored).chmod(mode)
    with pytest.raises(LaunchError, match="others may write it"):
        module_of(stored)
    os.close(stored.fd)


def test_other_content_is_refused(tmp_path: Path) -> None:
    stored = store(make(), tmp_path)
    pickle_of(stored).write_bytes(b"cos\nsystem\n(S'touch harm'\ntR.")
    with pytest.raises(LaunchError, match=r"is not what tuner\.tune has written"):
        module_of(stored)
    os.close(stored.fd)


def test_link_is_not_followed(tmp_path: Path) -> None:
    stored = store(make(), tmp_path)
    path = pickle_of(stored)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LaunchError, match="can't be read"):
        module_of(stored)
    os.close(stored.fd)


def test_next_call_removes_what_nobody_holds_any_more(tmp_path: Path) -> None:
    first, second = store(make(), tmp_path), store(make(), tmp_path)
    assert pickle_of(first).exists(), "somebody holds it"
    os.close(first.fd)
    third = store(make(), tmp_path)
    assert not first.folder.exists()
    assert module_of(second).function(1) == 2
    assert len(list(tmp_path.glob("*.txt"))) == 1, "one text, one file"
    for each in (second, third):
        os.close(each.fd)
