"""Fixtures for all tests: the servers, of which each process of the tests starts one at most."""

from __future__ import annotations

from tests.databases import mariadb, new_url, postgresql, url

__all__ = ["mariadb", "new_url", "postgresql", "url"]
