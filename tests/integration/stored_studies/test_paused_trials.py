"""Every part says the same of which trials are paused."""

from __future__ import annotations

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from tests.integration.stored_studies.seeded import (
    NOW,
    add_attempt,
    add_dispatcher,
    add_study,
    looking,
    place,
)
from tuner.app.data.outcome_words import ALL_WORDS
from tuner.app.data.trials.columns import GrowingTrials
from tuner.domain.attempt import Outcome
from tuner.queries.locate import choose_study
from tuner.queries.studies import read_objectives, read_studies
from tuner.queries.trials.listing import Choice, read_trials
from tuner.store.optuna_tables.pauses import PAUSED_KEY, is_paused
from tuner.terminal.studies import counts_text
from tuner.terminal.why import explain


@pytest.fixture
def paused(url: str) -> str:
    """Trial 0 is paused; 1 was enqueued, 2 waits for more devices, and 3 was resumed."""
    waits = create_trial(state=TrialState.WAITING)
    note = {PAUSED_KEY: 3}
    trials = [
        create_trial(state=TrialState.WAITING, system_attrs=note),
        waits,
        create_trial(state=TrialState.WAITING, system_attrs={PAUSED_KEY: None}),
        create_trial(state=TrialState.RUNNING, system_attrs=note),
    ]
    add_study(url, "first", trials)
    dispatcher_id = add_dispatcher(url, "first")
    for number in (0, 2):
        add_attempt(url, dispatcher_id, number, outcome=Outcome.PAUSED)
    add_attempt(url, dispatcher_id, 3)
    return url


def chosen(url: str, *states: str) -> list[tuple[int, str]]:
    with looking(url) as connection:
        study = choose_study(connection, place(url))
        objectives = read_objectives(connection)[study.id]
        choice = Choice(states=frozenset(states))
        found = read_trials(connection, study.id, objectives, choice, now=NOW)
    return [(each.number, each.word) for each in found]


def test_list_of_trials(paused: str) -> None:
    words = ["paused", "waiting", "waiting", "running"]
    assert chosen(paused) == list(enumerate(words))
    assert chosen(paused, "paused") == [(0, "paused")]


def test_counts_and_why_and_pages_and_memory(paused: str) -> None:
    with looking(paused) as connection:
        study = choose_study(connection, place(paused))
        (summary,) = read_studies(connection, NOW)
        assert counts_text(summary) == "4: 1 running, 2 waiting, 1 paused"
        assert (summary.n_waiting, summary.n_begun) == (2, 2)
        heads = [explain(connection, study, number, NOW).splitlines()[0] for number in range(3)]
        objectives = read_objectives(connection)[study.id]
        columns = GrowingTrials(study.id, objectives).refresh(connection)
    assert [head.rpartition(": ")[2] for head in heads] == ["paused", "waits", "waits"]
    assert [ALL_WORDS[code] for code in columns.words.tolist()] == [
        *("paused", "waiting", "waiting", "running")
    ]
    stored = optuna.load_study(study_name="first", storage=paused)
    assert [is_paused(trial) for trial in stored.trials] == [True, False, False, False]
