"""What an engine does for a study: it renders, submits, lists and cancels allocations.

In each allocation runs the ordinary `python -m tuner.run`, which joins the study over SQL. An
adapter therefore keeps no state: it asks Slurm, the API server and so on each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from tuner.domain.allocation import Allocation, OwnAllocation

#: For engines without variables of their own: what `submit` gives to the dispatcher.
ENV_ALLOCATION = "TUNER_ALLOCATION"
ENV_NUMBER = "TUNER_ALLOCATION_NUMBER"
#: Seconds since 1970.
ENV_DEADLINE = "TUNER_ALLOCATION_DEADLINE"
#: For the end of the dispatcher itself, on a busy node.
_MARGIN_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationOrder:
    """What is asked of an engine: the same for each allocation of a study."""

    study: str
    #: Words of the dispatcher's command, the same on each node.
    command: tuple[str, ...]
    #: Working directory of the command. Absolute.
    folder: Path
    #: Folder of logs and checkpoints. Absolute.
    home: Path | None = None
    #: Copy of the code in which `command` and `folder` are; None: the working tree itself.
    code: Path | None = None
    #: Where an engine with a shared folder writes the output of dispatchers. Absolute.
    log_folder: Path
    #: Variables of the dispatcher. No secrets: engines show them.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Lines of bash that run before the command, such as `module load cuda/12.4`.
    setup: tuple[str, ...] = ()
    #: GPUs of one allocation; 0: none are asked for.
    devices: int = 0
    #: None: what the engine gives without being asked.
    cpus: int | None = None
    memory_bytes: int | None = None
    #: Longest time of one allocation. None: the engine's own limit.
    time_s: float | None = None
    #: What trials have to save in (`trial.stop_grace`).
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

    Methods wait for the engine for a bounded time and raise EngineError with its own words, the
    value and what to do. None of them starts threads.
    """

    name: str

    def check(self, order: AllocationOrder) -> None:
        """Checks, without a change, what would make `submit` fail.

        Raises:
            EngineError: For a missing program or package, a refused partition, namespace or image,
                a grace period shorter than `order.notice_s`, too much of anything.
        """

    def render(self, order: AllocationOrder, numbers: Sequence[int]) -> str:
        """The script or manifest whole, fit to be applied by hand; needs no engine to be there."""

    def submit(self, order: AllocationOrder, numbers: Sequence[int]) -> tuple[Allocation, ...]:
        """Submits one allocation for each number.

        It is idempotent: a number whose allocation is not over stays as it is, and is returned too.
        All are submitted, or none.

        Raises:
            EngineError: If the engine refuses.
        """

    def allocations(self, study: str) -> tuple[Allocation, ...]:
        """What the engine knows of a study, by number; engines forget ended ones after a time."""

    def cancel(self, names: Sequence[str]) -> None:
        """Ends allocations: SIGTERM, then the engine's grace. Unknown and ended names are fine."""

    def log_of(self, name: str, log_folder: Path) -> Path | str:
        """The output of an allocation's dispatcher: its file, or the text itself.

        Raises:
            EngineError: If there is none, with the reason (not started yet, removed).
        """

    def own_allocation(self, environ: Mapping[str, str]) -> OwnAllocation | None:
        """The allocation in which this process runs; None outside of one."""

    def show_progress(self, name: str, text: str) -> None:
        """Shows a line such as `12/64 trials, best 0.962` in the engine's own list, if it can."""

    def look_command(self, study: str) -> str:
        """The engine's own command that lists the study's allocations, for people."""


@runtime_checkable
class KnowsNodes(Protocol):
    """An engine that can tell whether its nodes are this machine, or get copies of files."""

    #: Whether the code and the study file are copied to the nodes.
    copies_files: bool

    def nodes_are_here(self) -> bool:
        """Whether all nodes are this machine, so that they reach its folders and 127.0.0.1."""
