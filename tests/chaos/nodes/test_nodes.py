"""Machines of their own on which studies survive: some faults by day, all of them by night."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.nodes.faults import FAULTS
from tests.chaos.nodes.network import why_not
from tests.chaos.nodes.play import NodeChaos, run_nodes
from tests.chaos.nodes.table import table_of_nodes
from tests.engines.ssh_server import sshd_program

# By day: tests/e2e/interruptions/test_preemption.py and tests/unit/test_chaos_history.py.
pytestmark = [pytest.mark.engines, pytest.mark.nightly]


@pytest.fixture(autouse=True)
def needs_namespaces() -> None:
    if reason := why_not():
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "chaos",
    [
        # One that waits for no takeover, and half of the dispatchers.
        pytest.param(
            NodeChaos(faults=("engine: preempted, 5 s of grace",), studies=("slots",), batch=18),
            id="one",
        ),
        pytest.param(NodeChaos(), id="all"),
    ],
)
def test_nothing_is_lost_with_machines(tmp_path: Path, chaos: NodeChaos) -> None:
    if set(chaos.faults) == set(FAULTS):
        pytest.importorskip("moto")
        if sshd_program() is None:
            pytest.skip("sshd is not installed: apt-get install openssh-server")
    result = run_nodes(chaos, tmp_path)
    print(table_of_nodes(result))
    assert result.findings == []
    assert {each.kind for each in result.struck} == set(chaos.faults)
    assert result.n_changes > 0
