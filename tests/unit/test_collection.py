"""Modules that are not imported are those of which no test is chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collection import has_no_chosen_test

TESTS = Path(__file__).parent.parent
DAY = "not nightly and not (programs or engines)"
PROGRAMS = "not nightly and (programs or engines)"
OF_PROGRAMS = TESTS / "integration/trials/test_sharded.py"
WITHOUT_MARK = TESTS / "unit/test_collection.py"
#: Each of its tests has the marks of its engine, which a conftest.py gives.
OF_A_CONFTEST = TESTS / "contract/engines/test_engines.py"
#: A list over several lines.
OF_SEVERAL = TESTS / "integration/benchmarks/test_failing.py"


@pytest.mark.parametrize(
    ("path", "expression", "is_left_out"),
    [
        (OF_PROGRAMS, DAY, True),
        (OF_PROGRAMS, PROGRAMS, False),
        (OF_PROGRAMS, "", False),
        (OF_PROGRAMS, "not (", False),
        (WITHOUT_MARK, DAY, False),
        (WITHOUT_MARK, "nightly or not nightly", False),
        (OF_A_CONFTEST, DAY, False),
        (OF_A_CONFTEST, PROGRAMS, False),
        (OF_SEVERAL, "not slow", True),
        (OF_SEVERAL, DAY, False),
        (TESTS / "conftest.py", PROGRAMS, False),
    ],
)
def test_a_module_is_left_out(path: Path, expression: str, is_left_out: bool) -> None:
    assert path.is_file()
    assert has_no_chosen_test(path, expression) is is_left_out


def test_a_module_without_a_mark_is_left_out_of_a_group() -> None:
    other = TESTS / "unit/test_clock.py"
    assert has_no_chosen_test(other, PROGRAMS)
    assert not has_no_chosen_test(other, DAY)
