"""Names that no database stores are found before one is written."""

from __future__ import annotations

import pytest

from tuner.domain.messages import MAX_KEY, MAX_METRIC_NAME, name_problem


@pytest.mark.parametrize("limit", [MAX_METRIC_NAME, MAX_KEY])
def test_a_name_of_the_limit_is_stored_and_a_longer_one_is_not(limit: int) -> None:
    assert name_problem("ü" * limit, limit) == ""
    problem = name_problem("ü" * (limit + 1), limit)
    assert f"{limit + 1} characters, but at most {limit}" in problem
    assert len(problem) < 150


@pytest.mark.parametrize("name", ["loss\0", "\0", "loss\ud800", "\udfff"])
def test_characters_that_postgresql_or_mysql_refuse_are_named(name: str) -> None:
    problem = name_problem(name, MAX_METRIC_NAME)
    assert repr(name) in problem
    assert "no database stores" in problem
