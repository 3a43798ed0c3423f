"""Which refreshes of a page come too late."""

from __future__ import annotations

import pytest
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData

from tuner.app.late_refresh import is_late


@pytest.mark.parametrize(
    ("asked", "parts", "ran", "late"),
    [
        ("studies", ["table"], "compare", True),
        ("compare", ["figure"], "compare", False),
        ("studies", [], "compare", False),  # A click at the left: a whole page.
        ("studies", ["table"], "", False),  # The first request of a script runner.
    ],
)
def test_parts_of_a_page_that_was_left_are_late(
    asked: str, parts: list[str], ran: str, late: bool
) -> None:
    assert is_late(RerunData(page_script_hash=asked, fragment_id_queue=parts), ran) is late
