"""The decision on examples: what each person of a small machine would expect."""

from __future__ import annotations

import pytest

from tests.unit.shares.shares_bench import Machine, amounts, ask, census_of, counts, ids, whole
from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import DeviceId
from tuner.shares.decision import decide
from tuner.shares.people import Census, Person

ANN, BOB, CAT = 1001, 1002, 1003


def test_without_a_claim_nothing_is_given() -> None:
    decision = decide([], whole(8), census_of([]), 0.0)
    assert decision.allotted == {}
    assert decision.moves == ()


def test_one_user_has_all() -> None:
    assert counts(decide([ask(ANN, 8)], whole(8), census_of([ANN]), 0.0)) == {"claim-1001": 8}


def test_what_the_guarantees_leave_is_divided_equally() -> None:
    decision = decide([ask(ANN, 8), ask(BOB, 8)], whole(8), census_of([ANN, BOB], {ANN: 4}), 0.0)
    assert counts(decision) == {"claim-1001": 6, "claim-1002": 2}
    assert decision.standings[ANN].by_right == 4 * WHOLE
    assert decision.standings[BOB].by_right == 0


def test_a_guarantee_that_is_not_used_is_lent() -> None:
    decision = decide([ask(ANN, 1), ask(BOB, 8)], whole(8), census_of([ANN, BOB], {ANN: 4}), 0.0)
    assert counts(decision) == {"claim-1001": 1, "claim-1002": 7}
    assert decision.moves == ()


def test_a_borrower_gives_back_as_many_as_the_guarantee_lacks_at_once_however_fresh() -> None:
    borrower = ask(BOB, 4, 4, holds=ids(4), held_since_s=99.0)
    decision = decide([ask(ANN, 2, 4), borrower], whole(4), census_of([ANN, BOB], {ANN: 2}), 100.0)
    assert [(move.giver, move.taker) for move in decision.moves] == [
        ("claim-1002", "claim-1001"),
        ("claim-1002", "claim-1001"),
    ]
    assert all(move.is_by_right for move in decision.moves)
    assert decision.moves[0].among == frozenset(ids(4))


def test_without_a_right_nobody_takes_a_device_before_hold_is_over() -> None:
    asks = [ask(ANN, 4, 4), ask(BOB, 4, 4, holds=ids(4), held_since_s=100.0)]
    census = census_of([ANN, BOB], hold_s=60.0)
    assert decide(asks, whole(4), census, 159.0).moves == ()
    moves = decide(asks, whole(4), census, 160.0).moves
    assert len(moves) == 2
    assert not any(move.is_by_right for move in moves)


def test_free_devices_are_taken_before_anybody_gives_back() -> None:
    asks = [ask(ANN, 2, 6), ask(BOB, 6, 6, holds=ids(4))]
    decision = decide(asks, whole(6), census_of([ANN, BOB], {ANN: 2}), 1e6)
    assert decision.moves == ()
    assert decision.allotted["claim-1001"] == frozenset(ids(6)[4:])


def test_twice_the_weight_is_twice_of_what_is_left() -> None:
    census = census_of([ANN, BOB], weights={ANN: 2.0})
    decision = decide([ask(ANN, 9, 9), ask(BOB, 9, 9)], whole(9), census, 0.0)
    assert counts(decision) == {"claim-1001": 6, "claim-1002": 3}


def test_a_guarantee_of_a_group_is_for_its_members_together() -> None:
    members = {uid: Person(uid=uid, account="@vision") for uid in (ANN, BOB)}
    people = members | {CAT: Person(uid=CAT, account="*")}
    census = Census(people=people, guarantees={"@vision": 4 * WHOLE})
    asks = [ask(ANN, 4, 4), ask(BOB, 4, 4), ask(CAT, 4, 4)]
    assert counts(decide(asks, whole(4), census, 0.0)) == {
        "claim-1001": 2,
        "claim-1002": 2,
        "claim-1003": 0,
    }


def test_an_odd_guarantee_of_a_group_makes_no_device_change_hands_each_turn() -> None:
    people = {uid: Person(uid=uid, account="@vision") for uid in (1, 2)}
    census = Census(people=people, guarantees={"@vision": 5 * WHOLE})
    for turn in range(4):
        found = decide([ask(1, 8), ask(2, 8)], whole(8), census, turn * census.hold_s)
        assert counts(found) == {"claim-1": 4, "claim-2": 4}


def test_nobody_has_more_than_the_most_for_a_user_also_who_had() -> None:
    census = census_of([ANN], most=3)
    decision = decide([ask(ANN, 8, holds=ids(5))], whole(8), census, 1.0)
    assert counts(decision) == {"claim-1001": 3}
    assert [(move.giver, move.taker) for move in decision.moves] == [("claim-1001", None)] * 2


def test_a_user_s_studies_divide_the_user_s_part_by_priority() -> None:
    asks = [
        ask(ANN, 8, name="low", priority=10),
        ask(ANN, 3, name="high", priority=90),
        ask(BOB, 8, name="other", priority=100),
    ]
    decision = decide(asks, whole(8), census_of([ANN, BOB]), 0.0)
    # Another user's priority counts for nothing.
    assert counts(decision) == {"low": 1, "high": 3, "other": 4}


def test_equal_studies_of_a_user_take_turns_with_the_odd_device() -> None:
    asks = [ask(ANN, 3, 3, name="one"), ask(ANN, 3, 3, name="two")]
    census = census_of([ANN], hold_s=60.0)
    had = [counts(decide(asks, whole(3), census, turn * 60.0))["one"] for turn in range(4)]
    assert sorted(set(had)) == [1, 2]


def test_a_wide_trial_gets_all_of_its_devices_or_none() -> None:
    asks = [ask(ANN, 8, unit=4), ask(BOB, 8)]
    decision = decide(asks, whole(6), census_of([ANN, BOB], {BOB: 3}), 0.0)
    assert counts(decision) == {"claim-1001": 0, "claim-1002": 6}


def test_slices_count_as_the_part_of_a_gpu_that_they_are() -> None:
    seventh = WHOLE // 7
    slices = {DeviceId(f"MIG-{n}"): seventh for n in range(7)}
    asks = [ask(ANN, 7, suits=slices), ask(BOB, 7, suits=slices)]
    census = census_of([ANN, BOB], {ANN: 0.6})
    decision = decide(asks, slices, census, 0.0)
    # 0.6 of a GPU are four slices by right, and three are left for two users.
    assert decision.standings[ANN].by_right == 4 * seventh
    assert amounts(decision, asks)[ANN] in (5, 6)


def test_a_tuner_moves_over_to_a_device_that_only_it_can_use_as_well() -> None:
    first, second = ids(2)
    asks = [
        ask(ANN, 1, suits=[first], since_s=5.0),
        ask(BOB, 1, holds=[first], suits=[first, second]),
    ]
    decision = decide(asks, whole(2), census_of([ANN, BOB]), 1e6)
    assert decision.allotted == {
        "claim-1001": frozenset([first]),
        "claim-1002": frozenset([second]),
    }
    assert [(move.device_id, move.giver) for move in decision.moves] == [(first, "claim-1002")]


def test_two_who_say_that_they_have_a_device_are_not_both_believed() -> None:
    liar = ask(BOB, 1, 2, holds=ids(1), since_s=10.0)
    honest = ask(ANN, 1, 2, holds=ids(1), since_s=0.0)
    decision = decide([liar, honest], whole(2), census_of([ANN, BOB]), 1e6)
    assert decision.allotted["claim-1001"] == frozenset(ids(2)[:1])
    assert decision.moves == ()


@pytest.mark.parametrize("n_users", [2, 3, 4, 5, 6])
def test_equal_users_who_all_want_everything_have_equal_hours(n_users: int) -> None:
    uids = range(n_users)
    machine = Machine(n_devices=8, census=census_of(uids), save_s=5.0)
    for uid in uids:
        machine.ask(ask(uid, 8))
    machine.run(3600.0, look_every_s=5.0)
    mean_s = sum(machine.device_s.values()) / n_users
    assert mean_s > 0.97 * 3600 * 8 / n_users
    assert all(abs(each / mean_s - 1) < 0.03 for each in machine.device_s.values())


def test_each_of_two_wide_studies_of_each_of_two_users_has_a_turn() -> None:
    asks = [ask(uid, 8, unit=8, name=f"{uid}-{n}") for uid in (ANN, BOB) for n in range(2)]
    census = census_of([ANN, BOB], hold_s=60.0)
    turns = [counts(decide(asks, whole(8), census, turn * 60.0)) for turn in range(4)]
    assert [sum(each.values()) for each in turns] == [8] * 4
    assert {name for each in turns for name, n_devices in each.items() if n_devices} == {
        each.name for each in asks
    }


def test_what_becomes_free_meets_a_guarantee_before_it_makes_up_a_fair_part() -> None:
    free = ids(8)[:4]
    asks = [
        ask(ANN, 5, holds=ids(8)[7:], held_since_s=95.0),
        ask(BOB, 7, holds=ids(8)[4:7], since_s=1.0),
        ask(CAT, 3, since_s=2.0),
    ]
    census = census_of([ANN, BOB, CAT], {ANN: 4, CAT: 1}, hold_s=1e6)
    decision = decide(asks, whole(8), census, 100.0)
    now = {name: len(devices & set(free)) for name, devices in decision.allotted.items()}
    assert now == {"claim-1001": 3, "claim-1002": 0, "claim-1003": 1}


def test_the_guarantee_that_was_asked_for_first_is_met_first() -> None:
    lender = ask(CAT, 3, 3, holds=ids(3)[1:])
    asks = [
        ask(ANN, 1, 3, waits_since_s=20.0),
        ask(BOB, 1, 3, waits_since_s=10.0),
        lender,
    ]
    census = census_of([ANN, BOB, CAT], {ANN: 1, BOB: 1})
    for turn in range(3):
        decision = decide(asks, whole(3), census, 1e6 + turn * census.hold_s)
        assert decision.allotted["claim-1002"] == frozenset(ids(3)[:1])


def test_a_device_that_its_tuner_cannot_use_is_given_back_however_fresh() -> None:
    idle = ask(ANN, 1, 4, holds=ids(4), held_since_s=99.0)
    decision = decide([idle, ask(BOB, 4, 4)], whole(4), census_of([ANN, BOB]), 100.0)
    assert [(move.giver, move.taker) for move in decision.moves] == [
        ("claim-1001", "claim-1002")
    ] * 3
    assert not any(move.is_by_right for move in decision.moves)
    busy = ask(ANN, 3, 4, holds=ids(4), held_since_s=99.0)
    # Bob's part is two: the one that is idle, and another once `hold` is over.
    assert len(decide([busy, ask(BOB, 4, 4)], whole(4), census_of([ANN, BOB]), 100.0).moves) == 1


def test_a_guarantee_of_a_part_is_met_by_shares_of_a_gpu_that_is_divided() -> None:
    shares = {DeviceId(f"GPU-00#{number}"): WHOLE // 4 for number in range(1, 5)}
    devices = {**shares, DeviceId("GPU-01"): WHOLE}
    small = ask(ANN, 2, suits=devices)
    lender = ask(BOB, 5, suits=devices, holds=devices)
    decision = decide([small, lender], devices, census_of([ANN, BOB], {ANN: 0.5}), 1e6)
    assert decision.standings[ANN].by_right == WHOLE // 2
    by_right = [move for move in decision.moves if move.is_by_right]
    assert {move.device_id for move in by_right} <= set(shares)
    assert len(by_right) == 2


def test_what_fits_into_a_share_leaves_whole_gpus_to_others() -> None:
    devices = {DeviceId("GPU-01"): WHOLE, DeviceId("GPU-09#1"): WHOLE // 4}
    decision = decide([ask(ANN, 1, suits=devices)], devices, census_of([ANN]), 0.0)
    assert decision.allotted["claim-1001"] == {DeviceId("GPU-09#1")}
