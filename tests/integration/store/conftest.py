"""Fixtures for the tests of what is stored."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.store.recorder.recorded import Store


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = Store(url)
    yield store
    store.database.close()
