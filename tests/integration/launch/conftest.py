"""Bounded waiting for what other processes bring about."""

from __future__ import annotations

from tests.contract.launch.conftest import local

__all__ = ["local"]
