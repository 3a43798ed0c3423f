"""The life of an attempt: each move that is allowed, each that is not, and what is stamped."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tuner.domain.attempt import TRANSITIONS, Attempt, AttemptState, Outcome, advance, attempt_id
from tuner.errors import InvalidTransition

LEASED_AT = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 1, 2, tzinfo=UTC)
ALLOWED = {
    ("leased", "running"),
    ("leased", "stopping"),
    ("leased", "clearing"),
    ("running", "stopping"),
    ("running", "clearing"),
    ("stopping", "clearing"),
    ("clearing", "finished"),
}
PAIRS = [(before, after) for before in AttemptState for after in AttemptState]


def an_attempt(state: AttemptState = AttemptState.LEASED, number: int = 1) -> Attempt:
    return Attempt(
        trial_id=40, trial_number=17, number=number, seed=1, leased_at=LEASED_AT, state=state
    )


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=[f"{b.value}-{a.value}" for b, a in PAIRS])
def test_advance_moves_exactly_where_the_table_says(before, after):
    attempt = an_attempt(before)
    if (before.value, after.value) in ALLOWED:
        assert advance(attempt, after, at=NOW).state is after
    else:
        with pytest.raises(InvalidTransition):
            advance(attempt, after, at=NOW)


def test_transitions_name_every_state():
    assert set(TRANSITIONS) == set(AttemptState)


def test_every_state_is_reached_from_leased():
    reached, todo = set(), {AttemptState.LEASED}
    while todo:
        reached |= todo
        todo = set().union(*(TRANSITIONS[state] for state in todo)) - reached
    assert reached == set(AttemptState)


@pytest.mark.parametrize(
    ("before", "after", "stamped"),
    [
        ("leased", "running", "started_at"),
        ("leased", "stopping", None),
        ("running", "clearing", "ended_at"),
        ("clearing", "finished", "finished_at"),
    ],
)
def test_advance_stamps_its_instant_and_no_other(before, after, stamped):
    moved = advance(an_attempt(AttemptState(before)), AttemptState(after), at=NOW)
    stamps = {name: getattr(moved, name) for name in ("started_at", "ended_at", "finished_at")}
    assert stamps == dict.fromkeys(stamps) | ({stamped: NOW} if stamped else {})
    assert moved.leased_at == LEASED_AT


def test_advance_leaves_the_value_before_as_it_was():
    attempt = an_attempt()
    advance(attempt, AttemptState.RUNNING, at=NOW)
    assert attempt.state is AttemptState.LEASED
    assert attempt.started_at is None


def test_invalid_transition_names_attempt_states_and_what_is_allowed():
    with pytest.raises(InvalidTransition) as caught:
        advance(an_attempt(AttemptState.RUNNING, number=2), AttemptState.FINISHED, at=NOW)
    assert str(caught.value) == (
        "trial 17 (attempt 2) cannot go from running to finished; "
        "allowed from there: clearing, stopping"
    )


def test_invalid_transition_from_finished_says_nothing_is_allowed():
    with pytest.raises(InvalidTransition, match="allowed from there: nothing"):
        advance(an_attempt(AttemptState.FINISHED), AttemptState.LEASED, at=NOW)


def test_attempt_id_is_trial_number_and_attempt_number():
    assert attempt_id(17, 2) == an_attempt(number=2).id == "17.2"


@pytest.mark.parametrize(("number", "text"), [(1, "trial 17"), (3, "trial 17 (attempt 3)")])
def test_attempt_as_text_names_later_attempts(number, text):
    assert str(an_attempt(number=number)) == text


@pytest.mark.parametrize("outcome", Outcome, ids=lambda outcome: outcome.value)
def test_is_failure_blames_the_program_only(outcome):
    blamed = {"failed", "out_of_memory", "timed_out", "failed_to_start"}
    assert outcome.is_failure == (outcome.value in blamed)
