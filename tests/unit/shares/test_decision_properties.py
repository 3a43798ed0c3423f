"""What holds of the decision whatever people ask."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from tests.unit.shares.shares_bench import Machine, amounts, ask, census_of, ids, whole
from tuner.devices.allocation.width import WHOLE
from tuner.devices.device import DeviceId
from tuner.shares.decision import decide
from tuner.shares.people import Census
from tuner.shares.terms import Ask

pytestmark = pytest.mark.slow
N_DEVICES = 8
UIDS = list(range(1, 7))
LONG_AGO = 1e6
#: Two GPUs, and slices of two sizes of others.
SLICES = dict(
    zip(ids(N_DEVICES), [WHOLE] * 2 + [WHOLE // 7] * 3 + [3 * WHOLE // 7] * 3, strict=True)
)


@st.composite
def guarantees(draw: st.DrawFn) -> dict[int, float]:
    """Their sum does not exceed the machine."""
    left = N_DEVICES
    found: dict[int, float] = {}
    for uid in draw(st.lists(st.sampled_from(UIDS), unique=True)):
        found[uid] = draw(st.integers(0, left))
        left -= int(found[uid])
    return found


@st.composite
def machines(
    draw: st.DrawFn, *, is_wide: bool = False, is_mixed: bool = False
) -> tuple[list[Ask], Census]:
    """Studies of up to six users, some of which have devices."""
    free = draw(st.permutations(ids(N_DEVICES)))
    asks = []
    for number in range(draw(st.integers(1, 8))):
        n_held = draw(st.integers(0, min(3, len(free))))
        held, free = free[:n_held], free[n_held:]
        unit = draw(st.sampled_from([1, 1, 2, 4])) if is_wide else 1
        suits = draw(st.sets(st.sampled_from(ids(N_DEVICES)))) if is_mixed else ids(N_DEVICES)
        asks.append(
            ask(
                draw(st.sampled_from(UIDS)),
                unit * draw(st.integers(0, N_DEVICES // unit)),
                holds=held,
                suits={*suits, *held},
                name=f"claim-{number}",
                unit=unit,
                since_s=draw(st.integers(0, 3)),
                priority=draw(st.sampled_from([10, 50])),
            )
        )
    weights = draw(st.dictionaries(st.sampled_from(UIDS), st.floats(0.5, 4.0)))
    return asks, census_of(UIDS, draw(guarantees()), weights=weights)


def wanted(asks: list[Ask], uid: int) -> int:
    return min(N_DEVICES, sum(each.wants for each in asks if each.uid == uid))


@given(machines())
@settings(max_examples=60)
def test_guarantees_are_met_and_no_device_is_idle_while_somebody_wants_it(
    machine: tuple[list[Ask], Census],
) -> None:
    asks, census = machine
    found = amounts(decide(asks, whole(N_DEVICES), census, LONG_AGO), asks)
    for uid in UIDS:
        guaranteed = census.guarantees.get(str(uid), 0) // WHOLE
        assert found[uid] >= min(guaranteed, wanted(asks, uid))
    assert sum(found.values()) == min(N_DEVICES, sum(each.wants for each in asks))


@given(machines(), st.lists(st.sampled_from(["@a", "@b", "*"]), min_size=6, max_size=6))
@settings(max_examples=60)
def test_guarantees_of_groups_are_met_for_their_members_together(
    machine: tuple[list[Ask], Census], accounts: list[str]
) -> None:
    asks, census = machine
    people = {
        uid: replace(census.people[uid], account=account)
        for uid, account in zip(UIDS, accounts, strict=True)
    }
    guaranteed = {"@a": 3 * WHOLE, "@b": 4 * WHOLE, "*": WHOLE}
    shared = replace(census, people=people, guarantees=guaranteed)
    for turn in range(3):
        decision = decide(asks, whole(N_DEVICES), shared, LONG_AGO + turn * census.hold_s)
        found = amounts(decision, asks)
        for account, parts in guaranteed.items():
            members = [uid for uid in UIDS if people[uid].account == account]
            due = min(parts // WHOLE, sum(wanted(asks, uid) for uid in members))
            assert sum(found[uid] for uid in members) >= due
        assert sum(found.values()) == min(N_DEVICES, sum(each.wants for each in asks))


@given(machines(is_wide=True, is_mixed=True))
@settings(max_examples=40)
def test_each_device_is_allotted_once_to_a_tuner_that_can_use_it_and_whole_trials_only(
    machine: tuple[list[Ask], Census],
) -> None:
    asks, census = machine
    decision = decide(asks, whole(N_DEVICES), census, LONG_AGO)
    given_out = [each for devices in decision.allotted.values() for each in devices]
    assert len(given_out) == len(set(given_out))
    for each in asks:
        allotted = decision.allotted[each.name]
        assert allotted <= each.suits
        assert len(allotted) <= each.wants
        assert len(allotted) % each.unit == 0


@given(machines(is_mixed=True))
@settings(max_examples=40)
def test_as_many_devices_are_used_as_their_kinds_allow(
    machine: tuple[list[Ask], Census],
) -> None:
    asks, census = machine
    decision = decide(asks, whole(N_DEVICES), census, LONG_AGO)
    assert sum(map(len, decision.allotted.values())) == most_that_fit(asks)


@given(machines(is_wide=True, is_mixed=True))
@settings(max_examples=60)
def test_as_few_devices_change_hands_as_the_amounts_allow(
    machine: tuple[list[Ask], Census],
) -> None:
    asks, census = machine
    decision = decide(asks, whole(N_DEVICES), census, LONG_AGO)
    slots = [each for each in asks for _ in decision.allotted[each.name]]
    if not slots:
        return
    costs = [
        [
            0 if device_id in each.holds else 1 if device_id in each.suits else 100
            for device_id in ids(N_DEVICES)
        ]
        for each in slots
    ]
    rows, columns = linear_sum_assignment(costs)
    fewest = sum(costs[row][column] for row, column in zip(rows, columns, strict=True))
    changed = sum(len(decision.allotted[each.name] - set(each.holds)) for each in asks)
    assert changed == fewest


def most_that_fit(asks: list[Ask]) -> int:
    """The size of a maximum matching, by Kuhn's algorithm."""
    slots = [each.suits for each in asks for _ in range(each.wants)]
    owner: dict[DeviceId, int] = {}

    def place(slot: int, seen: set[DeviceId]) -> bool:
        for device_id in slots[slot] - seen:
            seen.add(device_id)
            if device_id not in owner or place(owner[device_id], seen):
                owner[device_id] = slot
                return True
        return False

    return sum(place(slot, set()) for slot in range(len(slots)))


@given(machines(is_wide=True))
@settings(max_examples=40)
def test_everybody_has_a_turn_with_what_is_left(machine: tuple[list[Ask], Census]) -> None:
    asks, census = machine
    wanting = [each for each in asks if each.wants]
    lent = N_DEVICES - sum(
        min(census.guarantees.get(str(uid), 0) // WHOLE, wanted(asks, uid)) for uid in UIDS
    )
    had: set[str] = set()
    n_users = len({each.uid for each in asks})
    for turn in range(n_users * len(asks)):
        decision = decide(asks, whole(N_DEVICES), census, LONG_AGO + turn * census.hold_s)
        had |= {name for name, devices in decision.allotted.items() if devices}
    for each in wanting:
        is_outranked = any(
            other.uid == each.uid and other.priority > each.priority for other in wanting
        )
        assert each.name in had or each.unit > lent or is_outranked


@given(machines(), st.sampled_from(UIDS), st.floats(1.0, 4.0))
@settings(max_examples=60)
def test_more_weight_is_never_less(
    machine: tuple[list[Ask], Census], uid: int, factor: float
) -> None:
    asks, census = machine
    person = census.people[uid]
    heavier = replace(
        census, people={**census.people, uid: replace(person, weight=factor * person.weight)}
    )
    before = decide(asks, whole(N_DEVICES), census, LONG_AGO)
    after = decide(asks, whole(N_DEVICES), heavier, LONG_AGO)
    assert amounts(after, asks)[uid] >= amounts(before, asks)[uid]


@given(
    machines(is_wide=True, is_mixed=True),
    st.lists(st.sets(st.integers(0, 7)), max_size=12),
    st.sampled_from([None, None, 3]),
    st.sampled_from([whole(N_DEVICES), SLICES]),
)
@settings(max_examples=60)
def test_while_nobody_asks_for_anything_new_moves_come_to_an_end(
    machine: tuple[list[Ask], Census],
    acting: list[set[int]],
    most: float | None,
    parts: dict[DeviceId, int],
) -> None:
    asks, census = machine
    limit = None if most is None else round(most * WHOLE)
    people = {uid: replace(each, most_parts=limit) for uid, each in census.people.items()}
    # In one turn, in which all devices have been held for long.
    box = Machine(
        n_devices=N_DEVICES,
        parts=parts,
        census=replace(census, people=people, hold_s=LONG_AGO),
        now_s=3 * LONG_AGO,
    )
    for each in asks:
        box.ask(each)
        box.holds[each.name] = dict(each.holds)
    # Tuners do not look all at once: some act on a decision, and the others on later ones.
    for numbers in acting:
        box.look({f"claim-{number}" for number in numbers})
        box.now_s += 1.0
    for _ in range(3 * N_DEVICES):
        box.look()
        box.now_s += 1.0
    n_moves, n_taken = box.n_moves, len(box.taken)
    for _ in range(4):
        box.look()
    assert (box.n_moves, len(box.taken)) == (n_moves, n_taken)
    if len(set(box.parts.values())) == 1:
        # Each device that changes hands brings the end nearer by one.
        assert n_taken <= N_DEVICES


HISTORY = st.lists(
    st.tuples(st.integers(5, 200), st.sampled_from(UIDS), st.integers(0, N_DEVICES)),
    min_size=1,
    max_size=12,
)


@given(HISTORY, guarantees(), st.sampled_from([0.0, 10.0, 60.0]))
@settings(max_examples=25)
def test_a_guarantee_is_met_within_the_grace_whatever_others_did_before(
    history: list[tuple[int, int, int]], guaranteed: dict[int, float], save_s: float
) -> None:
    look_s = 5.0
    box = Machine(n_devices=N_DEVICES, census=census_of(UIDS, guaranteed), save_s=save_s)
    short_since: dict[int, float] = {}
    for wait_s, uid, wants in history:
        box.ask(ask(uid, wants))
        short_since.pop(uid, None)
        end_s = box.now_s + wait_s
        while box.now_s < end_s:
            box.look()
            check_guarantees(box, guaranteed, short_since, save_s + 2 * look_s)
            box.now_s += look_s


def check_guarantees(
    box: Machine, guaranteed: dict[int, float], short_since: dict[int, float], within_s: float
) -> None:
    for name, one in box.asks.items():
        due = min(int(guaranteed.get(one.uid, 0)), one.wants)
        if len(box.holds[name]) >= due:
            short_since.pop(one.uid, None)
        else:
            assert box.now_s - short_since.setdefault(one.uid, box.now_s) <= within_s


@given(HISTORY)
@settings(max_examples=20)
def test_without_guarantees_nobody_loses_a_device_before_hold_is_over(
    history: list[tuple[int, int, int]],
) -> None:
    box = Machine(n_devices=N_DEVICES, census=census_of(UIDS, hold_s=120.0))
    for wait_s, uid, wants in history:
        box.ask(ask(uid, wants))
        end_s = box.now_s + wait_s
        while box.now_s < end_s:
            held = {name: dict(holds) for name, holds in box.holds.items()}
            fresh = Counter(
                move.giver
                for move in decide(box.current(), whole(N_DEVICES), box.census, box.now_s).moves
                if any(box.now_s - held[move.giver][each] < 120.0 for each in move.among)
            )
            for giver, n_devices in fresh.items():
                # Those that it cannot use.
                assert n_devices <= len(held[giver]) - box.asks[giver].wants
            box.look()
            box.now_s += 5.0


@given(machines(is_wide=True), st.integers(1, 4))
@settings(max_examples=40)
def test_a_user_who_has_no_more_than_the_limit_never_comes_above_it(
    machine: tuple[list[Ask], Census], most: int
) -> None:
    asks, census = machine
    limited = {
        uid: replace(person, most_parts=most * WHOLE) for uid, person in census.people.items()
    }
    box = Machine(n_devices=N_DEVICES, census=replace(census, people=limited, hold_s=30.0))
    for each in asks:
        box.ask(each)
    for _ in range(12):
        box.look()
        box.now_s += 10.0
        for uid in UIDS:
            held = [len(box.holds[each.name]) for each in asks if each.uid == uid]
            assert sum(held) <= most
