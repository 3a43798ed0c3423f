"""What `tuner shares` and `tuner devices` say of claims, and the hours that users had."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.fakes import a_gpu
from tests.unit.shares.shares_bench import census_of
from tuner.app.charts.machine.users import users_figure
from tuner.app.data.devices.shares import machine_shares, users_table
from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import DeviceId
from tuner.devices.table import DeviceRow
from tuner.host.process_identity import pid_namespace
from tuner.shares.claims import Claim, OwnClaim
from tuner.shares.decision import decide
from tuner.shares.ledger import Ledger, read_used
from tuner.shares.people import Census, Person
from tuner.shares.report import (
    HeldDevice,
    MachineShares,
    held_devices,
    read_shares,
    read_waits,
)
from tuner.shares.seat import ask_of
from tuner.shares.words import accounts_of, move_text, waits_text
from tuner.terminal.machine.shares import rows_with_shares, shares_text, with_shares

HOUR_S = 3600.0
NOW_S = 500_000 * HOUR_S
GPUS = [a_gpu(index).id for index in range(3)]


class Time:
    now_s = NOW_S


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "shares.yaml"
    file.write_text(f"folder: {tmp_path / 'claims'}\nguaranteed: {{'{os.getuid()}': 1}}\n")
    return {"TUNER_SHARES": str(file)}


def claim(tmp_path: Path) -> OwnClaim:
    """Two of three GPUs; the second is given back."""
    own = OwnClaim(tmp_path / "claims")
    own.write(
        Claim(
            pid=os.getpid(),
            pid_namespace=pid_namespace(),
            priority=50,
            since_s=NOW_S,
            wants=3,
            unit=1,
            suits=dict.fromkeys(GPUS, 10_000),
            holds={GPUS[1]: NOW_S + 1, GPUS[0]: NOW_S},
            leaving=frozenset([GPUS[1]]),
        )
    )
    return own


def test_each_user_s_part_and_each_device_is_told(tmp_path: Path, environ: dict[str, str]) -> None:
    with closing(claim(tmp_path)):
        shares = read_shares(environ, NOW_S)
        assert shares is not None
        (user,) = shares.users
        assert user.account == str(os.getuid())
        assert (user.guaranteed, user.held, user.borrowed) == (1, 2, 1)
        assert (user.part, user.waits_for) == (3, 1)
        by_id = {each.device_id: each for each in shares.devices}
        assert not by_id[GPUS[0]].is_borrowed
        assert by_id[GPUS[1]].is_borrowed
        text = shares_text(shares)
        assert f"by right (pid {os.getpid()})" in text
        assert f"borrowed, given back soon (pid {os.getpid()})" in text
    assert read_shares({"TUNER_SHARES": str(tmp_path / "absent")}) is None
    empty = read_shares(environ, NOW_S)
    assert empty is not None
    assert "No tuner has claimed" in shares_text(empty)


def test_a_guarantee_of_a_group_is_counted_once_for_all_its_members() -> None:
    claims = [a_claim(70007, 1, 1, 3), a_claim(70008, 2, 2, 3)]
    people = {uid: Person(uid=uid, account="@vision") for uid in (70007, 70008)}
    found = Census(people=people, guarantees={"@vision": 2 * WHOLE})
    decision = decide([ask_of(each) for each in claims], whole_of(claims), found, 1e6)
    accounts = accounts_of(found, decision)
    assert waits_text(claims[0], claims, decision, accounts, 70007).startswith(
        "user id 70008 has 2 (@vision: 2 of 2 guaranteed and borrows 1), you have 1, "
    )


def test_devices_of_a_group_are_by_right_up_to_its_guarantee() -> None:
    claims = [a_claim(70007, 1, 1, 3), a_claim(70008, 2, 2, 3)]
    people = {uid: Person(uid=uid, account="@vision") for uid in (70007, 70008)}
    found = Census(people=people, guarantees={"@vision": round(1.5 * WHOLE)})
    devices = held_devices(claims, found, whole_of(claims))
    assert [(each.is_borrowed, parts / WHOLE) for each, parts in devices] == [
        (False, 0),
        (True, 0.5),
        (True, 1),
    ]


LOCK = """
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(60)
"""


def test_a_device_that_another_process_keeps_locked_is_not_that_of_the_claim(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    with closing(claim(tmp_path)):
        command = [sys.executable, "-c", LOCK, str(tmp_path / "claims" / GPUS[0])]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            other.stdout.readline()
            shares = read_shares(environ, NOW_S)
            other.kill()
    assert shares is not None
    assert [each.device_id for each in shares.devices] == [GPUS[1]]
    assert f"claims to have {GPUS[0]}, which process {other.pid} keeps locked." in shares_text(
        shares
    )


def test_devices_name_the_user_who_holds_them(tmp_path: Path, environ: dict[str, str]) -> None:
    rows = [row(device_id, "another tuner (pid 7) uses it") for device_id in GPUS]
    with closing(claim(tmp_path)):
        told = with_shares(rows, read_shares(environ, NOW_S))
    assert told[0].holders.endswith(f", by right (pid {os.getpid()})")
    assert "another tuner" not in told[0].holders
    assert told[2] == rows[2]
    assert with_shares(rows, None) == rows
    Path(environ["TUNER_SHARES"]).write_text("{")
    said: list[str] = []
    look = rows_with_shares(lambda: rows, environ, said.append)
    assert (look(), look()) == (rows, rows)
    assert [line[:8] for line in said] == ["shares: "]


def row(device_id: DeviceId, holders: str) -> DeviceRow:
    return DeviceRow(
        label="GPU",
        id=device_id,
        name="Fake",
        memory_total_bytes=None,
        memory_used_bytes=None,
        utilization_pct=None,
        island=None,
        numa_node=None,
        holders=holders,
        is_free=True,
    )


def test_hours_of_a_day_and_of_a_week(tmp_path: Path) -> None:
    time = Time()
    first, second = (Ledger(tmp_path, lambda: time.now_s) for _ in range(2))
    time.now_s += HOUR_S / 2
    first.note(2.0)
    second.note(1.0)
    first.write()
    second.write()
    assert read_used(tmp_path, time.now_s) == {os.getuid(): (1.5, 1.5)}
    time.now_s += 30 * HOUR_S
    assert read_used(tmp_path, time.now_s) == {os.getuid(): (0.0, 1.5)}
    time.now_s += 7 * 24 * HOUR_S
    assert read_used(tmp_path, time.now_s) == {os.getuid(): (0.0, 0.0)}


@pytest.mark.parametrize("content", ["", "[1]", "{'a': 1}", '{"1": "x"}', "[" * 5000])
def test_a_file_of_hours_with_rubbish_counts_nothing_and_is_written_anew(
    tmp_path: Path, content: str
) -> None:
    time = Time()
    file = tmp_path / f"used-{os.getuid()}"
    file.write_text(content)
    assert read_used(tmp_path, NOW_S) == {os.getuid(): (0.0, 0.0)}
    ledger = Ledger(tmp_path, lambda: time.now_s)
    time.now_s += HOUR_S
    ledger.note(1.0)
    ledger.write()
    assert read_used(tmp_path, time.now_s) == {os.getuid(): (1.0, 1.0)}


def test_links_to_other_files_are_not_hours(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text('{"500000": 3600}')
    (tmp_path / f"used-{os.getuid()}").symlink_to(other)
    assert read_used(tmp_path, NOW_S) == {}
    ledger = Ledger(tmp_path, lambda: NOW_S)
    ledger.note(1.0)
    ledger.write()
    assert other.read_text() == '{"500000": 3600}'


def test_the_figure_has_a_colour_for_each_user_and_hatches_what_is_borrowed() -> None:
    held = [
        HeldDevice(
            device_id=GPUS[0], user="ann", uid=1, pid=1, is_borrowed=False, is_leaving=False
        ),
        HeldDevice(device_id=GPUS[1], user="bob", uid=2, pid=2, is_borrowed=True, is_leaving=True),
        HeldDevice(device_id=GPUS[2], user="ann", uid=1, pid=1, is_borrowed=True, is_leaving=False),
    ]
    shares = MachineShares(file="shares.yaml", users=(), devices=tuple(held))
    figure = users_figure(shares, {GPUS[0]: "GPU 0"})
    assert figure is not None
    # Others of the machine, of which this database knows no number.
    assert figure.layout.xaxis.ticktext == ("GPU 0", *(f"{each[:12]}..." for each in GPUS[1:3]))
    ann, bob = figure.data
    assert (ann.name, list(ann.x)) == ("ann", [GPUS[0], GPUS[2]])
    assert list(ann.marker.pattern.shape) == ["", "/"]
    assert (bob.name, list(bob.customdata)) == ("bob", ["borrowed, given back soon"])
    assert ann.marker.color != bob.marker.color
    assert users_figure(MachineShares(file="shares.yaml", users=(), devices=()), {}) is None


def test_the_dashboard_shows_users_and_nothing_where_there_are_none_or_rules_are_broken(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    said: list[str] = []
    assert machine_shares(environ, said.append) is None
    with closing(claim(tmp_path)):
        shares = machine_shares(environ, said.append)
        assert shares is not None
        table = users_table(shares)
        assert (table["has"], table["borrows"], table["guaranteed"]) == ([2], [1], [1])
        assert said == []
        Path(environ["TUNER_SHARES"]).write_text("{")
        assert machine_shares(environ, said.append) is None
        assert "shares.yaml: line 1" in said[0]


def a_claim(uid: int, pid: int, holds: int, wants: int, leaving: int = 0) -> Claim:
    """Process 1 has the first ones of three GPUs, process 2 the last ones."""
    mine = GPUS[:holds] if pid == 1 else GPUS[len(GPUS) - holds :]
    return Claim(
        name=f"claim-{pid}",
        uid=uid,
        pid=pid,
        pid_namespace=pid_namespace(),
        priority=50,
        since_s=pid,
        wants=wants,
        unit=1,
        suits=dict.fromkeys(GPUS, WHOLE),
        holds=dict.fromkeys(mine, 0.0),
        leaving=frozenset(mine[:leaving]),
    )


@pytest.mark.parametrize(
    ("reader", "claims", "text"),
    [
        (
            70008,
            [a_claim(70007, 1, 1, 2), a_claim(70008, 2, 2, 4, leaving=1)],
            "user id 70007 has 1 of 2 guaranteed, you borrow 1 that user id 70007 asked back",
        ),
        (
            70009,
            [a_claim(70007, 1, 1, 2), a_claim(70008, 2, 2, 4, leaving=1)],
            "user id 70007 has 1 of 2 guaranteed, "
            "user id 70008 borrows 1 that user id 70007 asked back",
        ),
        (
            70008,
            [a_claim(70007, 1, 2, 2), a_claim(70008, 2, 1, 4)],
            "user id 70007 has 2 of 2 guaranteed, you have 1, your part is 1",
        ),
        (
            70008,
            [a_claim(70008, 1, 1, 3), a_claim(70008, 2, 2, 3)],
            "your other studies have 2, you have 3, your part is 3",
        ),
        (70008, [a_claim(70008, 2, 2, 2)], ""),
    ],
)
def test_what_a_study_waits_for_names_who_has_it_and_what_was_asked_back(
    reader: int, claims: list[Claim], text: str
) -> None:
    census = census_of([70007, 70008], {70007: 2})
    sizes = whole_of(claims)
    decision = decide([ask_of(each) for each in claims], sizes, census, 1e6)
    own = next(each for each in claims if each.uid == 70008)
    assert waits_text(own, claims, decision, accounts_of(census, decision), reader) == text


def whole_of(claims: list[Claim]) -> dict[DeviceId, int]:
    return {device_id: WHOLE for each in claims for device_id in each.suits}


def test_only_dispatchers_of_this_machine_are_looked_up_and_broken_rules_are_named(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    with closing(claim(tmp_path)):
        (line,) = read_waits(environ, {os.getpid()}, NOW_S)
        assert line == "waits: you have 2, your part is 3"
        assert read_waits(environ, {os.getpid() + 1}, NOW_S) == []
        Path(environ["TUNER_SHARES"]).write_text("{")
        (line,) = read_waits(environ, {os.getpid()}, NOW_S)
        assert line == "shares: the rules of this machine cannot be read. Run: tuner shares check"
    assert read_waits({"TUNER_SHARES": str(tmp_path / "absent")}, {os.getpid()}) == []


def test_a_device_that_goes_to_a_fair_part_says_both_parts() -> None:
    claims = [a_claim(70007, 1, 0, 1), a_claim(70008, 2, 3, 3)]
    census = census_of([70007, 70008])
    decision = decide([ask_of(each) for each in claims], whole_of(claims), census, 1e6)
    (move,) = decision.moves
    people = {each.name: each.uid for each in claims}
    assert move_text(move, decision, people, {}) == (
        "given back to user id 70007, who has 0 of a part of 1; you have 3 of a part of 2"
    )
