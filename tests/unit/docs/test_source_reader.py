"""Public names are read from the source of a package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from docs.generate.source_reader import Class, Function, Value, read_package

PACKAGE = '''
"""A package."""

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from toy_of_docs.inner import Point, far

__all__ = ["Number", "Point", "far", "near"]

#: What counts.
Number: TypeAlias = int | float
HIDDEN: int = 1


def near(a: int, /, b=2, *rest: str, c: "Number" = 3, **more: int) -> bool:
    """Whether it is near."""
'''
INNER = '''
import contextlib
import dataclasses
import module_that_is_not_there


@dataclasses.dataclass(frozen=True)
class Point:
    """A point.

    Args:
        x: To the right.
    """

    x: int
    #: Upwards,
    #: in metres.
    y: float = 0.0
    _hidden: int = 0

    @property
    def norm(self) -> float:
        """Its length.

        From the origin.
        """

    def move(self, by: "Point", *, twice: bool = False) -> "Point":
        """Moves it."""

    def _hide(self): ...


@contextlib.contextmanager
def far(a_long_name_of_an_argument: dict[str, list[int]], another_one: set[int] | None = None):
    """Is far away."""
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "toy_of_docs"
    folder.mkdir()
    (folder / "__init__.py").write_text(PACKAGE)
    (folder / "inner.py").write_text(INNER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toy_of_docs", raising=False)
    return "toy_of_docs"


def test_package_has_the_names_of_its_all(package: str) -> None:
    read = read_package(package)
    assert read.docstring.text == "A package."
    assert [each.name for each in read.members] == ["Number", "Point", "far", "near"]


def test_alias_with_its_comment(package: str) -> None:
    number = read_package(package).members[0]
    assert number == Value(name="Number", type="int | float", text="What counts.")


def test_dataclass_with_fields_properties_and_methods(package: str) -> None:
    point = read_package(package).members[1]
    assert isinstance(point, Class)
    assert point.values == (
        Value(name="x", type="int", text="To the right."),
        Value(name="y", type="float", text="Upwards, in metres."),
        Value(name="norm", type="float", text="Its length. From the origin."),
    )
    (move,) = point.methods
    assert move.signature == "move(by: 'Point', *, twice: bool = False) -> 'Point'"


def test_long_signature_is_broken_and_a_context_manager_is_called_one(package: str) -> None:
    far = read_package(package).members[2]
    assert isinstance(far, Function)
    assert far.signature.splitlines() == [
        "far(",
        "    a_long_name_of_an_argument: dict[str, list[int]],",
        "    another_one: set[int] | None = None,",
        ") -> ContextManager",
    ]


def test_every_kind_of_argument(package: str) -> None:
    near = read_package(package).members[3]
    assert isinstance(near, Function)
    assert near.signature == (
        "near(a: int, /, b=2, *rest: str, c: 'Number' = 3, **more: int) -> bool"
    )


def test_unknown_package_is_an_error() -> None:
    with pytest.raises(LookupError, match="no_such_package"):
        read_package("no_such_package")


def test_name_that_is_nowhere_is_an_error(package: str, tmp_path: Path) -> None:
    (tmp_path / package / "__init__.py").write_text('__all__ = ["gone"]\n')
    with pytest.raises(LookupError, match="toy_of_docs does not define gone"):
        read_package(package)
