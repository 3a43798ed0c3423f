"""Worlds that are closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.dispatcher.world import World


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    worlds = []

    def make(*arguments, **keywords) -> World:
        worlds.append(World(tmp_path, *arguments, **keywords))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()
