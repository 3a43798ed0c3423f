"""Idle devices as text, with the cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from tuner.devices.idle_causes import CAUSE_WORDS, IdleCause
from tuner.queries.idle import IdleNow
from tuner.terminal import wording


def idle_texts(idle: Iterable[IdleNow], now: datetime) -> Iterator[str]:
    """`GPU 0, GPU 1 of node1: disk full, for 12 s`, one line for each host and cause."""
    groups: dict[tuple[str, IdleCause], list[IdleNow]] = {}
    for each in idle:
        groups.setdefault((each.host, each.cause), []).append(each)
    for (host, cause), devices in groups.items():
        for_s = max((now - each.since).total_seconds() for each in devices)
        names = ", ".join(each.device for each in devices)
        yield f"{names} of {host}: {CAUSE_WORDS[cause]}, for {wording.duration(max(0.0, for_s))}"
