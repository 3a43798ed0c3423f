"""What the guardian has to end when its pipe closes."""

from __future__ import annotations

import io

import pytest

from tuner.launch.local_host.guardian import watch_until_closed


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        (b"", set()),
        (b"+12\n", {12}),
        (b"+12\n+13\n-12\n", {13}),
        (b"+12\n-12\n+12\n", {12}),
        (b"-99\n+1234567\n+1234567\n", {1234567}),
    ],
)
def test_watch_until_closed_gives_the_groups_that_are_left(lines, left):
    assert watch_until_closed(io.BytesIO(lines)) == left
