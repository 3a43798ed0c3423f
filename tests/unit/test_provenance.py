"""Whether a process is the one that it was."""

from __future__ import annotations

import os

import psutil

from tuner.provenance import host_facts, is_alive, package_versions


def test_is_alive_of_this_process():
    facts = host_facts()
    assert facts.pid == os.getpid()
    assert is_alive(facts.pid, facts.process_created_at_s)


def test_is_alive_is_false_for_a_later_process_with_the_same_pid():
    assert not is_alive(os.getpid(), psutil.Process().create_time() - 60.0)


def test_is_alive_is_false_for_a_pid_that_nobody_has():
    unused = next(pid for pid in range(4_000_000, 3_000_000, -1) if not psutil.pid_exists(pid))
    assert not is_alive(unused, 0.0)


def test_package_versions_leave_out_what_is_not_installed():
    versions = package_versions()
    assert {"python", "optuna", "sqlalchemy"} <= set(versions)
    assert all(versions.values())
