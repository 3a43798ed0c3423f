"""An engine in memory, which passes the same contract tests as the real ones."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tuner.domain.allocation import Allocation, AllocationState, OwnAllocation
from tuner.engines.environment import own_allocation
from tuner.engines.port import AllocationOrder
from tuner.errors import EngineError


class FakeEngine:
    """Nodes that the test starts.

    Args:
        n_nodes: Allocations that run at a time; the others stay pending.
    """

    name = "fake"

    def __init__(self, n_nodes: int = 2) -> None:
        self.n_nodes = n_nodes
        self.progress: dict[str, str] = {}
        self._held: dict[tuple[str, int], Allocation] = {}

    def check(self, order: AllocationOrder) -> None:
        if order.devices > 8:
            raise EngineError(
                f"engine.devices is {order.devices}, but a node has 8. Use 8 or less."
            )

    def render(self, order: AllocationOrder, numbers: Sequence[int]) -> str:
        lines = [*order.setup, f"cd {shlex.quote(str(order.folder))}", shlex.join(order.command)]
        return "\n".join([f"# {order.study}: {', '.join(map(str, numbers))}", *lines]) + "\n"

    def submit(self, order: AllocationOrder, numbers: Sequence[int]) -> tuple[Allocation, ...]:
        self.check(order)
        for number in numbers:
            known = self._held.get((order.study, number))
            if known is None or known.state.is_over:
                name = f"{order.study}-{number}"
                new = Allocation(number=number, name=name, state=AllocationState.PENDING)
                self._held[order.study, number] = new
        return tuple(each for each in self.allocations(order.study) if each.number in numbers)

    def allocations(self, study: str) -> tuple[Allocation, ...]:
        self._start_pending()
        held = sorted(self._held.items())
        return tuple(allocation for (name, _), allocation in held if name == study)

    def cancel(self, names: Sequence[str]) -> None:
        for key, each in self._held.items():
            if each.name in names:
                self._held[key] = replace(each, state=AllocationState.ENDED)

    def log_of(self, name: str, log_folder: Path) -> Path | str:
        if all(each.name != name for each in self._held.values()):
            raise EngineError(f"There is no allocation {name}.")
        return f"output of {name}\n"

    def own_allocation(self, environ: Mapping[str, str]) -> OwnAllocation | None:
        return own_allocation(self.name, environ, is_requeued=False)

    def show_progress(self, name: str, text: str) -> None:
        self.progress[name] = text

    def look_command(self, study: str) -> str:
        return f"fake list {study}"

    def _start_pending(self) -> None:
        states = [each.state for each in self._held.values()]
        room = self.n_nodes - states.count(AllocationState.RUNNING)
        for key, each in sorted(self._held.items()):
            if each.state is AllocationState.PENDING and room > 0:
                self._held[key] = replace(each, state=AllocationState.RUNNING, node=f"n{key[1]}")
                room -= 1
