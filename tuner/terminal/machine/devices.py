"""Output of `tuner devices`: a table or JSON, once or repeatedly."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TypeAlias

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tuner.devices.occupancy import size_text
from tuner.devices.table import DeviceRow

_COLUMNS = ("device", "name", "memory", "use", "nvlink", "numa", "held by", "auto", "id")

Rows: TypeAlias = Sequence[DeviceRow]


def show_devices(console: Console, rows: Rows, *, as_json: bool = False) -> None:
    if as_json:
        print(devices_json(rows), flush=True)
    else:
        console.print(devices_table(rows))


def watch_devices(
    console: Console,
    look: Callable[[], Rows],
    *,
    interval_s: float,
    as_json: bool = False,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Shows the devices until Ctrl-C: in place on a terminal, else one after the other.

    Args:
        console: The console.
        look: Reads the devices.
        interval_s: Interval in seconds.
        as_json: Print one line of JSON for each reading.
        pause: Sleeps for a number of seconds.
    """
    with suppress(KeyboardInterrupt), _shown(console, as_json=as_json) as show:
        while True:
            show(look())
            pause(interval_s)


@contextmanager
def _shown(console: Console, *, as_json: bool) -> Iterator[Callable[[Rows], None]]:
    if as_json or not console.is_terminal:
        yield lambda rows: show_devices(console, rows, as_json=as_json)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda rows: live.update(devices_table(rows), refresh=True)


def devices_json(rows: Rows) -> str:
    """One line: a list of objects with the fields of `DeviceRow`."""
    return json.dumps([asdict(row) for row in rows])


def devices_table(rows: Rows) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bold")
    for column in _COLUMNS:
        table.add_column(column, overflow="fold")
    for row in rows:
        # Unchanged: the names of other users' processes are no markup.
        table.add_row(*map(Text, _cells(row)))
    return table


def _cells(row: DeviceRow) -> tuple[str, ...]:
    return (
        row.label,
        row.name,
        _memory(row.memory_used_bytes, row.memory_total_bytes),
        "" if row.utilization_pct is None else f"{row.utilization_pct} %",
        _number(row.island),
        _number(row.numa_node),
        row.holders,
        "yes" if row.is_free else "no",
        row.id,
    )


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)


def _memory(used_bytes: int | None, total_bytes: int | None) -> str:
    if total_bytes is None:
        return ""
    used = "?" if used_bytes is None else size_text(used_bytes)
    return f"{used} of {size_text(total_bytes)}"
