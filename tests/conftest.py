"""Fixtures for all tests: the servers, of which each process of the tests starts one at most."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.collection import has_no_chosen_test
from tests.databases import (
    mariadb,
    mariadb_of_process,
    new_url,
    postgresql,
    postgresql_of_process,
    url,
)
from tests.engines.ray_cluster import ray_server
from tests.engines.slurm_cluster import slurm_server
from tests.engines.ssh_server import ssh_server
from tests.object_stores import azure_container, bucket, store_server
from tests.shared_caches import share_caches

__all__ = [
    "azure_container",
    "bucket",
    "mariadb",
    "mariadb_of_process",
    "new_url",
    "postgresql",
    "postgresql_of_process",
    "ray_server",
    "slurm_server",
    "ssh_server",
    "store_server",
    "url",
]

share_caches()

# Hypothesis fails examples that take longer than 0.2 s; in CI it does not, and takes the same ones.
settings.register_profile(
    "without a clock", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
if not os.environ.get("CI"):
    settings.load_profile("without a clock")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out a module of which no test is chosen; None leaves the others to pytest."""
    return has_no_chosen_test(collection_path, config.option.markexpr) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects tests without a search for garbage, and leaves what was imported out of later ones.

    There are millions of objects by then, and each search looks at all of them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def main_module_stays() -> Iterator[None]:
    """Puts pytest's own `__main__` back.

    `AppTest` and `runpy` put what they run in its place. Python's multiprocessing runs `__main__`
    again in each process that it starts, so that a later test of this worker would run a page.
    """
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main
