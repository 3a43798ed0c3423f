"""What is wrong or doubtful in a machine's rules file, for its administrator."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tuner.config.mistakes import join_key
from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import Device
from tuner.devices.gpu_shares import is_named
from tuner.shares.people import is_known_here
from tuner.shares.rules import ShareRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A finding: one sentence, and whether it requires a change of the file."""

    text: str
    is_mistake: bool


def check_rules(
    rules: ShareRules, file: Path, box_parts: int | None, gpus: Sequence[Device] = ()
) -> Iterator[Finding]:
    """Checks a machine's rules.

    Args:
        rules: The rules in the file.
        file: The file.
        box_parts: Total size of the machine's devices, in parts; None if unknown.
        gpus: The GPUs of the machine.
    """
    sections = [("", rules), *((f"quiet_hours.{span}", one) for span, one in _hours(rules))]
    for key, section in sections:
        guaranteed = section.guaranteed or {}
        total = sum(guaranteed.values())
        if box_parts is not None and round(total * WHOLE) > box_parts:
            place = join_key(key, "guaranteed")
            yield Finding(
                text=f"{place} is {total:g} devices in all, but this machine has "
                f"{box_parts / WHOLE:g}. Guarantee no more than there are.",
                is_mistake=True,
            )
        for name in dict.fromkeys(chain(guaranteed, section.weights or {})):
            if not is_known_here(name):
                yield Finding(text=_unknown(key, name), is_mistake=False)
    for name in rules.gpu_shares:
        if gpus and not any(is_named(gpu, name) for gpu in gpus):
            yield Finding(
                text=f"gpu_shares.{name}: this machine has no such GPU. There are "
                f"{', '.join(f'{gpu.index} ({gpu.id})' for gpu in gpus)}.",
                is_mistake=True,
            )
    yield from _check_file(file)


def _hours(rules: ShareRules) -> Sequence[tuple[str, ShareRules]]:
    return [
        (span, ShareRules(**one.model_dump(exclude_none=True)))
        for span, one in rules.quiet_hours.items()
    ]


def _unknown(key: str, name: str) -> str:
    kind = "group" if name.startswith("@") else "user"
    return (
        f"{join_key(key, name)}: this machine knows no {kind} {name.lstrip('@')}. Correct the "
        f'name, or give the number ("{"@" if kind == "group" else ""}1001") of one that only '
        "containers know."
    )


def _check_file(file: Path) -> Iterator[Finding]:
    found = os.stat(file)
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        yield Finding(
            text=f"{file}: users other than its owner may write it. Run: chmod 644 {file}",
            is_mistake=True,
        )
    if not found.st_mode & stat.S_IROTH:
        yield Finding(
            text=f"{file}: not every user may read it. Run: chmod 644 {file}", is_mistake=True
        )
