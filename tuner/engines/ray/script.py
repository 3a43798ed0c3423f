"""The script of an actor on its node, and the program that `tuner submit --dry-run` prints."""

from __future__ import annotations

import pprint
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tuner.engines.port import ENV_ALLOCATION, ENV_DEADLINE, ENV_NUMBER, AllocationOrder
from tuner.engines.setup_lines import setup_lines

#: Standard library and Ray only: it runs unchanged.
PROGRAM = Path(__file__).with_name("program.py")
_SERVES = "    serve()\n"


def node_script(
    order: AllocationOrder, name: str, number: int, *, is_in_image: bool = False
) -> str:
    """Lines for bash on a node; the shell becomes the dispatcher.

    Args:
        order: The resources of each allocation.
        name: Name of the allocation.
        number: Its number.
        is_in_image: Whether the command runs where Ray was started: in the image's directory.
    """
    lines = _lines(order, name, number, is_in_image=is_in_image)
    return "".join(f"{line}\n" for line in lines)


def _lines(order: AllocationOrder, name: str, number: int, *, is_in_image: bool) -> Iterator[str]:
    named = {**order.environment, ENV_ALLOCATION: name, ENV_NUMBER: str(number)}
    for variable, value in named.items():
        yield f"export {variable}={shlex.quote(value)}"
    if order.time_s is not None:
        yield f"export {ENV_DEADLINE}=$(($(date +%s) + {int(order.time_s)}))"
    # The shell reads this from its stdin, which is not for them.
    yield from _without_input(order.setup)
    if not is_in_image:
        yield f"cd {shlex.quote(str(order.folder))} || exit 1"
    yield f"exec {shlex.join(order.command)} < /dev/null"


def _without_input(lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield "{"
        yield from setup_lines(lines)
        yield "} < /dev/null"


def probe_script(order: AllocationOrder, mark: Path) -> str:
    """Fails on a node where a dispatcher could not run, and prints why."""
    python = shlex.quote(order.command[0])
    told = shlex.quote(_not_shared(mark))
    lines = [
        *_without_input(order.setup),
        f"[ -e {shlex.quote(str(mark))} ] || {{ echo {told} >&2; exit 1; }}",
        f"{python} -c 'import tuner' < /dev/null",
    ]
    return "".join(f"{line}\n" for line in lines)


def _not_shared(mark: Path) -> str:
    return f"it does not see {mark.parent}. Move the study to a folder that the nodes share."


def submit_program(address: str, orders: Sequence[Mapping[str, object]]) -> str:
    """A program for a machine of the cluster, which makes the actors."""
    return _program(address, orders, "    print(*submit(ALLOCATIONS), sep='\\n')\n")


def job_program(orders: Sequence[Mapping[str, object]]) -> str:
    """Like `submit_program` for a job whose cluster ends with it: it waits for the actors."""
    return _program("auto", orders, "    sys.exit(wait_for(submit(ALLOCATIONS)))\n")


def _program(address: str, orders: Sequence[Mapping[str, object]], ending: str) -> str:
    text = PROGRAM.read_text(encoding="utf-8")
    assert text.endswith(_SERVES)
    given = pprint.pformat(list(orders), width=96, sort_dicts=False)
    head, _, guard = text.removesuffix(_SERVES).rpartition("\n\n\n")
    return f"{head}\n\n\nALLOCATIONS = {given}\n\n{guard}    connect({address!r})\n{ending}"
