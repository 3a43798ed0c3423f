"""The interface of an engine: it renders, submits, lists and cancels allocations.

Each allocation runs the ordinary `python -m tuner.run`, which joins the study over SQL. An adapter
therefore keeps no state: it queries Slurm, the API server and so on each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from tuner.domain.allocation import Allocation, OwnAllocation

#: For engines without variables of their own: set by `submit` for the dispatcher.
ENV_ALLOCATION = "TUNER_ALLOCATION"
ENV_NUMBER = "TUNER_ALLOCATION_NUMBER"
#: Seconds since 1970.
ENV_DEADLINE = "TUNER_ALLOCATION_DEADLINE"
#: For the end of the dispatcher itself, on a busy node.
_MARGIN_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationOrder:
    """A request to an engine, the same for each allocation of a study."""

    study: str
    #: Words of the dispatcher's command, the same on each node.
    command: tuple[str, ...]
    #: Working directory of the command. Absolute.
    folder: Path
    #: Folder of logs and checkpoints. Absolute.
    home: Path | None = None
    #: Copy of the code in which `command` and `folder` are; None: the working tree itself.
    code: Path | None = None
    #: Folder for the output of dispatchers on engines with a shared folder. Absolute.
    log_folder: Path
    #: Variables of the dispatcher. No secrets: engines show them.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Lines of bash that run before the command, such as `module load cuda/12.4`.
    setup: tuple[str, ...] = ()
    #: GPUs of one allocation; 0 to request none.
    devices: int = 0
    #: None for the engine's default.
    cpus: int | None = None
    memory_bytes: int | None = None
    #: Longest time of one allocation. None: the engine's own limit.
    time_s: float | None = None
    #: Seconds that trials have to save (`trial.stop_grace`).
    stop_grace_s: float

    @property
    def notice_s(self) -> int:
        """Time between the notice (SIGTERM) and the kill that a dispatcher needs, in seconds."""
        return notice_s(self.stop_grace_s)


def notice_s(stop_grace_s: float) -> int:
    """Seconds in which trials save, are ended if they do not, and are put back."""
    return int(2 * stop_grace_s) + _MARGIN_S


class Engine(Protocol):
    """One engine with the settings of `engine:` in the study file.

    Methods wait for the engine with a timeout and raise EngineError with its own message, the value
    and what to do. None of them starts threads.
    """

    name: str

    def check(self, order: AllocationOrder) -> None:
        """Checks, without a change, for errors that would make `submit` fail.

        Raises:
            EngineError: For a missing program or package, a refused partition, namespace or image,
                a grace period shorter than `order.notice_s`, or an exceeded limit.
        """

    def render(self, order: AllocationOrder, numbers: Sequence[int]) -> str:
        """The complete script or manifest, ready to apply manually; works without the engine."""

    def submit(self, order: AllocationOrder, numbers: Sequence[int]) -> tuple[Allocation, ...]:
        """Submits one allocation for each number.

        It is idempotent: the allocation of a number is kept if it is not over, and is returned too.
        All are submitted, or none.

        Raises:
            EngineError: If the engine refuses.
        """

    def allocations(self, study: str) -> tuple[Allocation, ...]:
        """A study's allocations in the engine, by number; engines forget ended ones."""

    def cancel(self, names: Sequence[str]) -> None:
        """Ends allocations: SIGTERM, then the engine's grace. Unknown and ended names are fine."""

    def log_of(self, name: str, log_folder: Path) -> Path | str:
        """The output of an allocation's dispatcher: its file, or its text.

        Raises:
            EngineError: If there is none, with the reason (not started yet, removed).
        """

    def own_allocation(self, environ: Mapping[str, str]) -> OwnAllocation | None:
        """The allocation in which this process runs; None outside of one."""

    def show_progress(self, name: str, text: str) -> None:
        """Shows a line such as `12/64 trials, best 0.962` in the engine's own list, if it can."""

    def look_command(self, study: str) -> str:
        """The engine's own command that lists the study's allocations, to show."""


@runtime_checkable
class KnowsNodes(Protocol):
    """An engine that knows whether its nodes are this machine, or get copies of files."""

    #: Whether the code and the study file are copied to the nodes.
    copies_files: bool

    def nodes_are_here(self) -> bool:
        """Whether all nodes are this machine, so that they reach its folders and 127.0.0.1."""
