"""Which tests of verbs run on which database by day."""

from __future__ import annotations

from pathlib import Path

import pytest

_HERE = Path(__file__).parent
#: They read what all verbs show, and stay on each kind of database.
_ON_EACH = {"test_studies.py", "test_trials.py"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves MariaDB to the night where a verb is tried on three databases.

    What differs between them is the store, whose tests run on all three by day.
    """
    for item in items:
        callspec = getattr(item, "callspec", None)
        is_ours = item.path.parent == _HERE and item.path.name not in _ON_EACH
        if is_ours and callspec is not None and "mariadb" in callspec.params.values():
            item.add_marker(pytest.mark.nightly)
