"""What `tuner trials` reads and prints, on each kind of database."""

from __future__ import annotations

import csv
import io
import math

import pytest
import sqlalchemy as sa
from optuna.study import StudyDirection
from optuna.trial import TrialState

from tests.integration.stored_studies.seeded import (
    NOW,
    SPACE,
    a_trial,
    add_attempt,
    add_dispatcher,
    add_first_study,
    add_study,
    as_objects,
    first_trials,
    looking,
    place,
    writing,
)
from tuner.domain.attempt import Outcome
from tuner.domain.messages import RETURNED_PARAMS_ATTR
from tuner.errors import ConfigError
from tuner.queries.locate import choose_study
from tuner.queries.studies import Objective, read_objectives
from tuner.queries.trials.listing import Choice, StoredTrial, read_trials
from tuner.terminal.trials import trials_csv, trials_json, trials_text


@pytest.fixture
def first(url: str) -> str:
    add_first_study(url)
    return url


def read(url: str, **choice: object) -> tuple[list[StoredTrial], tuple[Objective, ...]]:
    with_reports = bool(choice.pop("with_reports", False))
    with looking(url) as connection:
        stored = choose_study(connection, place(url))
        objectives = read_objectives(connection)[stored.id]
        chosen = Choice(**choice)  # type: ignore[arg-type]
        found = read_trials(
            connection, stored.id, objectives, chosen, now=NOW, with_reports=with_reports
        )
        return found, objectives


def numbers(url: str, **choice: object) -> list[int]:
    return [each.number for each in read(url, **choice)[0]]


def test_all_trials_the_newest_last(first: str) -> None:
    trials, _ = read(first)
    assert [each.number for each in trials] == list(range(8))
    assert [each.word for each in trials] == [
        *("completed", "completed", "pruned", "out_of_memory", "running", "waiting"),
        *("completed", "completed"),
    ]
    assert trials[0].values == {"accuracy": 0.8}
    assert trials[3].values == {}
    assert trials[7].values == {"accuracy": -math.inf}
    assert trials[1].params == {"lr": 0.01, "optimizer": "sgd", "momentum": 0.9, "epochs": 20}
    assert trials[5].params == {"lr": 0.05, "epochs": 20}
    assert trials[1].user_attributes == {"note": "güt \U0001f600", "list": [1, None]}
    assert [each.number for each in trials[3].attempts] == [1, 2]
    assert trials[4].attempts[0].devices == ("GPU 1",)
    assert (trials[5].duration_s, trials[1].attempts) == (None, ())


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"last": 3}, [5, 6, 7]),
        ({"top": 2}, [1, 0]),
        ({"top": 9}, [1, 0, 7]),
        ({"sort": "value"}, [1, 0, 2, 7, 6, 3, 4, 5]),
        ({"sort": "accuracy", "last": 3}, [7, 6, 5]),
        ({"states": frozenset({"pruned"})}, [2]),
        ({"states": frozenset({"pruned"}), "top": 1}, [2]),
        ({"states": frozenset({"failed"})}, [3]),
        ({"states": frozenset({"out_of_memory", "waiting"})}, [3, 5]),
        ({"states": frozenset({"timed_out"})}, []),
        ({"states": frozenset({"completed"}), "last": 1}, [7]),
        ({"sort": "number", "top": 2}, [0, 1]),
    ],
)
def test_choice(choice: dict[str, object], expected: list[int], chosen_from: str) -> None:
    assert numbers(chosen_from, **choice) == expected


@pytest.fixture(scope="module")
def chosen_from(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('choice')}/study.db"
    add_first_study(url)
    return url


def test_longest_first(url: str) -> None:
    add_study(url, "first", [a_trial({}, 0.1) for _ in range(3)])
    with writing(url) as connection:
        longer = "UPDATE trials SET datetime_complete = '2099-01-01 00:00:00.0' WHERE number = 1"
        connection.execute(sa.text(longer))
    assert numbers(url, sort="duration")[0] == 1


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (
            {"states": frozenset({"complete"})},
            "not_a_number, paused, abandoned. Did you mean 'completed'",
        ),
        (
            {"states": frozenset({"x"})},
            "--state is 'x', but must be one of completed, pruned, failed, running",
        ),
        ({"sort": "acuracy"}, "of number, value, duration, accuracy. Did you mean 'accuracy'"),
        ({"top": 1, "last": 1}, "--top and --last exclude each other"),
    ],
    ids=["near state", "state", "order", "both"],
)
def test_choice_that_cannot_be(choice: dict[str, object], message: str, chosen_from: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        read(chosen_from, **choice)


def test_parameters_of_a_define_by_run_space_are_whole(url: str) -> None:
    returned = {RETURNED_PARAMS_ATTR: {"layers": [64, 32]}}
    add_study(url, "first", [a_trial({"lr": 0.01}, 0.5, user_attrs=returned)])
    ((trial,), _) = read(url)
    assert trial.params == {"lr": 0.01, "epochs": 20, "layers": [64, 32]}


# -- how they are printed --------------------------------------------------------------------


def test_table(chosen_from: str) -> None:
    lines = trials_text(*read(chosen_from)).splitlines()
    assert lines[0].split() == [
        *("trial", "state", "accuracy", "took", "on", "attempts", "parameters")
    ]
    assert lines[4].startswith("3      out of memory ")
    assert lines[4].endswith(" GPU 0  2         lr 0.001, optimizer adamw, epochs 20")
    assert lines[7].startswith("6      completed, infeasible  0.99")
    assert "waiting" in lines[6]
    assert len({line.index(" GPU") for line in lines if " GPU" in line}) == 1


def test_json_is_complete_and_standard(chosen_from: str) -> None:
    trials, _ = read(chosen_from, with_reports=True)
    found = as_objects(trials_json(trials))
    assert [each["state"] for each in found][:4] == ["completed", "completed", "pruned", "failed"]
    assert found[0]["reports"] == {"1": 0.5, "2": "nan", "3": 0.8}
    assert found[3]["outcome"] == "out_of_memory"
    assert found[3]["attempts"][1]["detail"] == "the last line"
    assert found[7]["values"] == {"accuracy": "-inf"}
    assert found[0]["started_at"].endswith("Z")
    assert "reports" not in as_objects(trials_json(read(chosen_from)[0]))[0]
    assert as_objects(trials_json([])) == []


def test_csv_has_columns_as_optunas_data_frames(chosen_from: str) -> None:
    rows = list(csv.DictReader(io.StringIO(trials_csv(*read(chosen_from)))))
    assert list(rows[0]) == [
        *("number", "state", "outcome", "values_accuracy", "duration_s", "started_at"),
        *("completed_at", "attempts", "devices"),
        *("params_lr", "params_optimizer", "params_epochs", "params_momentum"),
    ]
    assert [row["state"] for row in rows][3:5] == ["failed", "running"]
    assert rows[3]["outcome"] == "out_of_memory"
    assert (rows[0]["params_momentum"], rows[1]["params_momentum"]) == ("", "0.9")


def test_number_of_statements_does_not_grow_with_the_trials(url: str) -> None:
    add_study(url, "first", first_trials() * 3)
    dispatcher = add_dispatcher(url, "first")
    for number in range(20):
        add_attempt(url, dispatcher, number, outcome=Outcome.COMPLETED)
    few, many = (n_statements(url, Choice(last=last)) for last in (8, 20))
    assert few == many <= 18


def n_statements(url: str, choice: Choice) -> int:
    with looking(url) as connection:
        (study,) = read_objectives(connection)
        seen: list[str] = []
        sa.event.listen(connection, "before_cursor_execute", lambda *words: seen.append(words[2]))
        objectives = [Objective(name="accuracy", direction=StudyDirection.MAXIMIZE)]
        read_trials(connection, study, objectives, choice, now=NOW, with_reports=True)
        return len(seen)


def test_many_trials_are_read_in_one_piece(url: str) -> None:
    trials = [a_trial({"lr": 0.01, "optimizer": "sgd"}, i / 600) for i in range(600)]
    add_study(url, "first", trials, space=SPACE)
    found, _ = read(url)
    assert [each.number for each in found] == list(range(600))
    assert all(each.params["epochs"] == 20 for each in found)
    assert numbers(url, top=2) == [599, 598]
    assert read(url, states=frozenset({"failed"}))[0] == []
    assert {each.state for each in found} == {TrialState.COMPLETE}
