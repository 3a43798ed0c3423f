"""Worlds that are closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.dispatcher.climbers import climbing, pbt
from tests.integration.dispatcher.world import Program, World
from tuner.domain.budget import Budget


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    worlds = []

    def make(*arguments, **keywords) -> World:
        worlds.append(World(tmp_path, *arguments, **keywords))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def populated(make_world: Callable[..., World]) -> Callable[..., World]:
    """A population of four on four devices, without another end than its own."""

    def make(program: Program | None = None, **terms: object) -> World:
        settings = {"pruner": pbt(), "n_trials": None, "budget": Budget(), "n_devices": 4}
        return make_world(program or climbing(), **{**settings, **terms})

    return make
