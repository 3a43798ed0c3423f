"""Fixtures for all tests: the servers, of which each process of the tests starts one at most."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.databases import mariadb, new_url, postgresql, url
from tests.object_stores import bucket, store_server

__all__ = ["bucket", "mariadb", "new_url", "postgresql", "store_server", "url"]

# Hypothesis fails examples that take longer than 0.2 s; in CI it does not, and takes the same ones.
settings.register_profile(
    "without a clock", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
if not os.environ.get("CI"):
    settings.load_profile("without a clock")
