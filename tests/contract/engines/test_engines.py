"""What the tuner expects of an engine, whichever it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.engines.conftest import Bench, by_number, until
from tuner.domain.allocation import AllocationState
from tuner.errors import EngineError

RUNNING, PENDING = AllocationState.RUNNING, AllocationState.PENDING


def test_rendered_text_holds_the_command_and_needs_no_engine(bench: Bench) -> None:
    order = bench.order("digits")
    text = bench.engine.render(order, [0, 1])
    assert all(word in text for word in order.command[:2])
    assert "digits" in text
    assert bench.engine.allocations("digits") == ()


def test_submitted_allocations_run_and_end_when_cancelled(bench: Bench) -> None:
    (one,) = bench.engine.submit(bench.order("digits"), [0])
    assert one.number == 0
    until(lambda: by_number(bench.engine, "digits")[0].state is RUNNING, "it runs")
    assert by_number(bench.engine, "digits")[0].node
    bench.engine.cancel([one.name])
    until(
        lambda: all(each.state.is_over for each in bench.engine.allocations("digits")),
        "it is over",
    )


def test_submitting_twice_is_submitting_once(bench: Bench) -> None:
    order = bench.order("digits")
    first = bench.engine.submit(order, [0])
    second = bench.engine.submit(order, [0, 1])
    try:
        assert first[0].name == second[0].name
        assert [each.number for each in second] == [0, 1]
        assert len(bench.engine.allocations("digits")) == 2
    finally:
        bench.engine.cancel([each.name for each in second])


def test_what_has_no_node_is_pending_and_then_runs(bench: Bench) -> None:
    if not bench.n_too_many:
        pytest.skip("this engine lets nothing wait")
    order = bench.order("digits")
    names = [each.name for each in bench.engine.submit(order, range(bench.n_too_many))]
    try:
        n_nodes = bench.n_too_many - 1

        def states() -> list[AllocationState]:
            return [each.state for each in bench.engine.allocations("digits")]

        until(lambda: states().count(RUNNING) == n_nodes, "all nodes are in use")
        (waiting,) = [each for each in bench.engine.allocations("digits") if each.state is PENDING]
        first = next(name for name in names if name != waiting.name)
        bench.engine.cancel([first])
        until(
            lambda: by_number(bench.engine, "digits")[waiting.number].state is RUNNING, "its turn"
        )
    finally:
        bench.engine.cancel(names)


def test_studies_do_not_see_each_other(bench: Bench) -> None:
    ours = bench.engine.submit(bench.order("digits"), [0])
    try:
        assert bench.engine.allocations("digits-2") == ()
        bench.engine.cancel(["no-such-allocation"])
        assert not by_number(bench.engine, "digits")[0].state.is_over
    finally:
        bench.engine.cancel([each.name for each in ours])


def test_output_of_a_dispatcher_can_be_read(bench: Bench) -> None:
    order = bench.order("digits", seconds=0.0)
    (one,) = bench.engine.submit(order, [0])

    def output() -> str:
        try:
            found = bench.engine.log_of(one.name, order.log_folder)
        except EngineError:
            return ""
        return found.read_text() if isinstance(found, Path) else found

    until(lambda: bool(output()), "there is output")
    with pytest.raises(EngineError, match="no-such"):
        bench.engine.log_of("no-such", order.log_folder)


def test_no_allocation_outside_of_one(bench: Bench) -> None:
    assert bench.engine.own_allocation({"PATH": "/bin"}) is None


def test_an_own_command_lists_the_allocations(bench: Bench) -> None:
    assert "digits" in bench.engine.look_command("digits")
