"""What is so of devices, whatever claims say."""

from __future__ import annotations

import pytest

from tests.fakes import a_gpu
from tests.unit.shares.shares_bench import census_of, ids
from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import DeviceId
from tuner.shares.claims import Claim
from tuner.shares.decision import decide
from tuner.shares.facts import parts_of_device, sizes_of
from tuner.shares.seat import ask_of

LIAR, HONEST = 1, 2
SLICE = WHOLE // 7


def a_claim(uid: int, suits: dict[DeviceId, int], holds: int = 0) -> Claim:
    return Claim(
        name=f"claim-{uid}",
        uid=uid,
        pid=uid,
        pid_namespace="",
        priority=50,
        since_s=uid,
        wants=len(suits),
        unit=1,
        suits=suits,
        holds=dict.fromkeys(list(suits)[:holds], 0.0),
    )


def test_a_user_who_calls_gpus_smaller_has_no_more_of_them_by_right() -> None:
    claims = [
        a_claim(LIAR, dict.fromkeys(ids(8), 1)),
        a_claim(HONEST, dict.fromkeys(ids(8), WHOLE), holds=8),
    ]
    census = census_of([LIAR, HONEST], {LIAR: 1, HONEST: 7})
    decision = decide([ask_of(each) for each in claims], sizes_of(claims), census, 1e6)
    assert len(decision.allotted["claim-1"]) == 1
    assert len(decision.moves) == 1


@pytest.mark.parametrize("lie", [1, WHOLE])
def test_what_a_tuner_has_seen_counts_more_than_a_claim(lie: int) -> None:
    device = ids(1)[0]
    claims = [a_claim(LIAR, {device: lie}), a_claim(HONEST, {device: SLICE})]
    assert sizes_of(claims, known={device: SLICE}) == {device: SLICE}
    assert parts_of_device(a_gpu(0)) == WHOLE


def test_slots_beyond_those_of_the_rules_and_thousands_of_gpus_are_invented() -> None:
    slots = {DeviceId(f"cpu:{number}"): WHOLE for number in (0, 3, 4, 99_999)}
    gpus = {DeviceId(f"GPU-{number}"): WHOLE for number in range(4000)}
    claims = [a_claim(LIAR, slots | gpus), a_claim(HONEST, {DeviceId("GPU-own"): WHOLE})]
    found = sizes_of(claims, 4, {DeviceId("GPU-own"): WHOLE})
    assert [each for each in found if each.startswith("cpu:")] == ["cpu:0", "cpu:3"]
    assert len([each for each in found if each.startswith("GPU-")]) == 513
    assert DeviceId("GPU-own") in found
