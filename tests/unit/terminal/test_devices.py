"""`tuner devices` as a table and as JSON, once and again and again."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from tests.fakes import GIB, FakeProbe, a_gpu
from tuner.devices.device import Holder
from tuner.devices.table import describe
from tuner.terminal.machine.devices import show_devices, watch_devices

LINKED = replace(a_gpu(0), island=1, numa_node=0)


@pytest.fixture
def probe():
    return FakeProbe([LINKED, a_gpu(1)])


@pytest.fixture
def out():
    return io.StringIO()


def a_console(out, **options) -> Console:
    return Console(file=out, width=200, **options)


def test_table_tells_island_and_node_where_they_are_known(probe, out):
    show_devices(a_console(out), describe(probe))
    header, first, second = out.getvalue().splitlines()
    assert re.split(r"\s{2,}", header.strip()) == [
        *("device", "name", "memory", "use", "nvlink", "numa", "held by", "auto", "id")
    ]
    assert first.split()[:3] == ["GPU", "0", "NVIDIA"]
    assert first.split()[-4:] == ["1", "0", "yes", LINKED.id]
    assert second.split()[-4:] == ["-", "-", "yes", a_gpu(1).id]


def test_names_of_processes_are_no_markup(probe, out):
    holder = Holder(pid=7, user="ann", command="[red]x", memory_bytes=GIB)
    probe.use(LINKED, holder)
    show_devices(a_console(out), describe(probe))
    assert "[red]x (pid 7, user ann)" in out.getvalue()


def test_json_has_the_figures(probe, capsys):
    show_devices(a_console(io.StringIO()), describe(probe), as_json=True)
    first, second = json.loads(capsys.readouterr().out)
    assert (first["id"], first["island"], first["numa_node"]) == (LINKED.id, 1, 0)
    assert (second["memory_total_bytes"], second["is_free"]) == (80 * GIB, True)


class Pauses:
    """Time passes: the first GPU gets a process; then the user presses Ctrl-C."""

    def __init__(self, probe) -> None:
        self._probe = probe
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if len(self.seconds) == 2:
            raise KeyboardInterrupt
        self._probe.use(LINKED, Holder(pid=7, user=None, command="x", memory_bytes=GIB))


@pytest.mark.parametrize("is_terminal", [False, True], ids=["pipe", "terminal"])
def test_watch_looks_again_until_ctrl_c(probe, out, is_terminal):
    pauses = Pauses(probe)
    console = a_console(out, force_terminal=is_terminal)
    watch_devices(console, lambda: describe(probe), interval_s=2.0, pause=pauses)
    before, _, after = out.getvalue().partition("x (pid 7)")
    assert pauses.seconds == [2.0, 2.0]
    assert before.count(LINKED.id) == 1
    assert LINKED.id in after


def test_watch_with_json_is_a_line_for_each_look(probe, capsys):
    watch_devices(
        a_console(io.StringIO()),
        lambda: describe(probe),
        interval_s=1.0,
        as_json=True,
        pause=Pauses(probe),
    )
    looks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [look[0]["is_free"] for look in looks] == [True, False]
