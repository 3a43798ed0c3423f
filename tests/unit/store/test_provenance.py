"""What is recorded of a start."""

from __future__ import annotations

import os
import socket

from tuner.store.records.provenance import host_facts, package_versions


def test_host_facts_are_those_of_this_process():
    facts = host_facts()
    assert (facts.name, facts.pid) == (socket.gethostname(), os.getpid())


def test_package_versions_leave_out_what_is_not_installed():
    versions = package_versions()
    assert {"python", "optuna", "sqlalchemy"} <= set(versions)
    assert all(versions.values())
