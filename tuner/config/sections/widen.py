"""`widen`: trials continue on more devices when no trials are queued."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.config.mistakes import Mistake
from tuner.config.notation.command_template import places
from tuner.config.sections.resources import ResourcesConfig, possible_widths
from tuner.devices.allocation.width import Devices, LearnedWidth
from tuner.search_spaces import AnySpace

#: Placeholder for the number of processes that a command starts.
_PLACE = "gpus"


def widen_mistakes(
    resources: ResourcesConfig | None,
    space: AnySpace | None,
    *,
    is_ddp: bool,
    command: tuple[str, ...],
) -> Iterator[Mistake]:
    """Checks that the program can use any number of whole devices."""
    if resources is not None:
        widths = possible_widths(resources.rule, space)
        is_learned = isinstance(resources.rule, LearnedWidth)
        if is_learned or not all(isinstance(width, Devices) for width in widths):
            problem = (
                "is true, but trials here have a part of a device "
                f"(trial.resources.{resources.key}). Give them whole devices, or remove widen."
            )
            yield Mistake(key="widen", problem=problem)
    if not is_ddp and not any(_PLACE in places(word) for word in command):
        problem = (
            "is true, but a trial here is one process, however many devices it has. Set "
            "trial.parallel: ddp, or let the command say how many ranks it starts "
            "(--nproc-per-node={gpus})."
        )
        yield Mistake(key="widen", problem=problem)
