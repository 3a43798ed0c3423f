"""Which modules of tests need not be imported, because no test of theirs will run.

Importing all of them takes each process of the tests ten seconds of a core: frameworks, trackers
and engines are large. What is read is text: a module's own `pytestmark`, and the marks that it or
a `conftest.py` above it names at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from functools import cache
from itertools import chain, combinations
from pathlib import Path

from _pytest.mark.expression import Expression

#: The marks by which the Makefile chooses.
_GROUPS = frozenset({"programs", "engines", "nightly", "slow", "gpu"})
_MARK = re.compile(r"\bmark\.(\w+)")
_OF_ALL = re.compile(r"^pytestmark = (?:\[.*?\]$|[^\[\n]*$)", re.DOTALL | re.MULTILINE)
_TESTS = Path(__file__).parent


def has_no_chosen_test(path: Path, expression: str) -> bool:
    """Whether a mark expression leaves out each test of a module, whatever marks its tests have.

    Args:
        path: A file below `tests/`.
        expression: What follows `-m`; empty to run every test.
    """
    if not expression or not path.name.startswith("test_") or path.suffix != ".py":
        return False
    text = path.read_text()
    found = _OF_ALL.search(text)
    of_all = _GROUPS & _marks(found[0]) if found else frozenset[str]()
    of_some = _GROUPS & (_marks(text) | _marks_above(path.parent))
    return not any(_chooses(expression, of_all | more) for more in _subsets(of_some))


def _marks(text: str) -> frozenset[str]:
    return frozenset(_MARK.findall(text))


@cache
def _marks_above(folder: Path) -> frozenset[str]:
    own = folder / "conftest.py"
    marks = _marks(own.read_text()) if own.exists() else frozenset[str]()
    return marks if folder == _TESTS else marks | _marks_above(folder.parent)


def _subsets(marks: Set[str]) -> Iterator[frozenset[str]]:
    sizes = (combinations(sorted(marks), n) for n in range(len(marks) + 1))
    return map(frozenset, chain.from_iterable(sizes))


@cache
def _chooses(expression: str, marks: frozenset[str]) -> bool:
    try:
        return Expression.compile(expression).evaluate(lambda name, **_: name in marks)
    except SyntaxError:
        return True  # pytest says what is wrong with it.
