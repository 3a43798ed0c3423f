"""Who is meant by `tuner set devices=...`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.queries.test_study_state import ALIVE
from tuner.actions.commands import choose_dispatcher
from tuner.errors import ConfigError

SECOND = replace(ALIVE, id=2, pid=8)
ELSEWHERE = replace(ALIVE, id=3, host="node2", pid=7)


def test_only_one_is_meant_wherever_it_is() -> None:
    assert choose_dispatcher([ELSEWHERE], [], None, None) is ELSEWHERE


def test_host_and_pid_tell_them_apart() -> None:
    alive = [ALIVE, SECOND, ELSEWHERE]
    assert choose_dispatcher(alive, alive, "node2", None) is ELSEWHERE
    assert choose_dispatcher(alive, alive, "node1", 8) is SECOND


@pytest.mark.parametrize(
    ("host", "pid", "problem"),
    [
        (None, None, "Several machines work on this study: node1 (pid 7), node1 (pid 8), node2 "),
        ("node1", None, "Say which one gets other devices: --pid 7."),
        (
            "node3",
            None,
            "--host is node3, where no dispatcher of this study runs. Dispatchers: node1 (pid",
        ),
        (None, 99, "--pid is 99, where no dispatcher of this study runs."),
    ],
    ids=["hosts", "pids", "no such host", "no such pid"],
)
def test_what_may_be_several_or_none_is_refused(
    host: str | None, pid: int | None, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        choose_dispatcher([ALIVE, SECOND, ELSEWHERE], [], host, pid)
    assert problem in str(caught.value)


def test_one_whose_clock_is_wrong_is_found_by_its_name() -> None:
    assert choose_dispatcher([ALIVE], [ALIVE, ELSEWHERE], "node2", None) is ELSEWHERE
    assert choose_dispatcher([ALIVE], [ALIVE, ELSEWHERE], None, None) is ALIVE


def test_containers_with_one_host_name_and_pid_are_not_told_apart() -> None:
    twins = [ALIVE, replace(ALIVE, id=4)]
    with pytest.raises(ConfigError) as caught:
        choose_dispatcher(twins, twins, "node1", 7)
    assert "2 dispatchers of this study have the host name node1 and the pid 7" in str(caught.value)
