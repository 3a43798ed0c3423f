"""The benchmark of the database: what it fills, what it plays, and its tables."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from benchmarks.common.measures import Span
from benchmarks.database import cold, fleet, held, many, reports, trial
from benchmarks.database.__main__ import MEASURES, kinds_of, parse_arguments
from benchmarks.database.chatter import Worker
from benchmarks.database.once import OPENERS
from benchmarks.database.played import JumpingClock, PlayedWorkers
from benchmarks.database.servers import POSTGRESQL
from benchmarks.database.stored import (
    OBJECTIVE,
    SPACE,
    STUDY,
    kept_study,
    level_of,
    make_study,
    value_at,
)
from tests.servers import Postgresql
from tuner.domain.attempt import AttemptId, Outcome
from tuner.domain.messages import Action, Finished, Hello, Report, Verdict, decode
from tuner.launch.inbox import Received, SourceId, WorkerExited

N_STORED, N_REPORTS = 12, 4


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.fixture
def stored(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/study.db"
    make_study(url, N_STORED, N_REPORTS)
    return url


def trials_in(url: str) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name=STUDY, storage=url).get_trials()


# -- what is stored ------------------------------------------------------------------------------


def test_stored_study_is_one_of_optuna(stored: str) -> None:
    trials = trials_in(stored)
    assert [one.number for one in trials] == list(range(N_STORED))
    assert {one.state for one in trials} == {TrialState.COMPLETE}
    for one in trials:
        assert one.params.keys() == set(SPACE.names)
        expected = {step: level_of(one.number) + 1 / step for step in range(1, N_REPORTS + 1)}
        assert one.intermediate_values == pytest.approx(expected)
        assert one.value == pytest.approx(expected[N_REPORTS])


def test_measured_curve_is_below_all_stored_ones(stored: str) -> None:
    for one in trials_in(stored):
        assert all(value_at(step) < value for step, value in one.intermediate_values.items())


def test_kept_study_is_filled_once(tmp_path: Path) -> None:
    with kept_study(tmp_path, N_STORED, N_REPORTS) as url:
        study = optuna.load_study(study_name=STUDY, storage=url)
        study.tell(study.ask(), state=TrialState.FAIL)
    with kept_study(tmp_path, N_STORED, N_REPORTS) as again:
        assert len(trials_in(again)) == N_STORED + 1
    with kept_study(tmp_path, N_STORED + 1, N_REPORTS) as other:
        assert other != url


# -- what is played ------------------------------------------------------------------------------


def test_dispatcher_runs_played_trials_to_their_last_report(stored: str) -> None:
    args = parse_arguments(["trial", "--trials", "20", "--reports", str(N_REPORTS)])
    taken, transactions = trial.time_tuner(stored, N_STORED, args)
    assert len(taken) == 1
    assert transactions > 1
    own = trials_in(stored)[N_STORED:]
    assert Counter(one.state for one in own) == {TrialState.COMPLETE: 20}
    assert all(len(one.intermediate_values) == N_REPORTS for one in own)


#: By day: `test_dispatcher_runs_played_trials_to_their_last_report`.
@pytest.mark.nightly
@pytest.mark.parametrize("is_wal", [False, True])
def test_optuna_runs_the_same_trials(stored: str, is_wal: bool) -> None:
    words = ["trial", "--optuna-trials", "2", "--reports", str(N_REPORTS)]
    taken, transactions = trial.time_optuna(stored, parse_arguments(words), is_wal=is_wal)
    assert len(taken) == 2
    assert transactions > N_REPORTS
    own = trials_in(stored)[N_STORED:]
    assert Counter(one.state for one in own) == {TrialState.COMPLETE: 3}
    assert all(len(one.intermediate_values) == N_REPORTS for one in own)


def test_played_worker_ends_where_it_is_pruned() -> None:
    workers = PlayedWorkers(JumpingClock(), n_reports=9, report_every_s=1.0)
    attempt_id, source = AttemptId("0.1"), SourceId(1)
    workers._attempt_of[source] = attempt_id
    workers.send(source, Verdict(attempt_id=attempt_id, step=1, action=Action.CONTINUE))
    assert workers.drain(0.25) == []
    (said,) = workers.drain(5.0)
    assert isinstance(said, Received)
    assert said.message == Report(attempt_id=attempt_id, step=2, values={OBJECTIVE: value_at(2)})
    workers.send(source, Verdict(attempt_id=attempt_id, step=2, action=Action.PRUNE))
    finished, exited = workers.drain(0.0)
    assert isinstance(finished, Received)
    assert isinstance(finished.message, Finished)
    assert finished.message.outcome is Outcome.PRUNED
    assert isinstance(exited, WorkerExited)


def test_chatter_says_what_the_channel_understands(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / "channel"))
    listener.listen()
    worker = Worker("3.1", "secret", str(tmp_path / "channel"))
    worker.finish(is_pruned=False)
    connection, _ = listener.accept()
    with connection, listener:
        hello, finished = map(decode, connection.makefile("rb").read().splitlines())
    assert isinstance(hello, Hello)
    assert (hello.attempt_id, hello.token, hello.is_worker) == ("3.1", "secret", True)
    assert isinstance(finished, Finished)
    assert finished.values == {OBJECTIVE: value_at(1)}


#: By day: `test_chatter_says_what_the_channel_understands`.
@pytest.mark.nightly
def test_reports_are_counted_over_the_real_channel(stored: str) -> None:
    words = ["--seconds", "1", "--warm-up", "0", "--slots", "4", "--reports", str(N_REPORTS)]
    args = parse_arguments(["reports", *words, "--stored", str(N_STORED)])
    rate = reports.count(stored, "sqlite", args)
    assert rate.n_seconds == 1
    assert rate.per_s > 0
    assert len(trials_in(stored)) > N_STORED


#: By day: `test_played_worker_ends_where_it_is_pruned`.
@pytest.mark.nightly
def test_dispatchers_are_played_in_real_time_and_seen_by_their_server(
    postgresql: Postgresql,
) -> None:
    words = ["--devices", "2", "--trial", "4", "--seconds", "6", "--settle", "0"]
    url = postgresql.new_database()
    load = many.run_once(url, 2, parse_arguments(["many", *words]))
    postgresql.drop_database(url)
    assert load.claims_per_s > 0
    assert load.connections >= 2
    assert load.server_cores > 0
    assert f"| 2 | {load.claims_per_s:.2f} (1.00) |" in many.table([load])


@pytest.mark.parametrize("system", OPENERS)
def test_study_is_opened_asked_and_judged(system: str, stored: str) -> None:
    looks = OPENERS[system](stored)
    assert list(looks) == ["imported", "read", "asked", "judged"]
    assert all(0 < look["rss"] <= look["peak"] for look in looks.values())
    assert [one.state for one in trials_in(stored)[N_STORED:]] == [TrialState.FAIL]


# -- what is run ---------------------------------------------------------------------------------


def test_each_measure_has_its_defaults() -> None:
    for name in MEASURES:
        assert parse_arguments([name]).output == Path(f"benchmark-database-{name}.json")
    assert kinds_of(parse_arguments(["fleet"])) == [POSTGRESQL]
    assert kinds_of(parse_arguments(["cold"])) == ["sqlite"]
    assert kinds_of(parse_arguments(["memory"])) == []


def test_optuna_is_left_out_where_it_would_take_hours() -> None:
    args = parse_arguments(["trial", "--stored", "400", "50000"])
    assert list(trial.cases(args)) == [
        ("sqlite", 400, "tuner"),
        ("sqlite", 400, "Optuna"),
        ("sqlite", 400, "Optuna, WAL"),
        ("sqlite", 50_000, "tuner"),
        ("postgresql", 400, "tuner"),
        ("postgresql", 400, "Optuna"),
        ("postgresql", 50_000, "tuner"),
    ]


def test_trials_of_optuna_are_dealt_out_evenly() -> None:
    assert [fleet.share_of(number, 20, 6) for number in range(6)] == [4, 4, 3, 3, 3, 3]


def test_steady_time_is_from_first_start_to_last_end() -> None:
    spans = [
        Span(slot=None, trial="0", pid=1, start_ns=2 * 10**9, end_ns=3 * 10**9),
        Span(slot=None, trial="1", pid=2, start_ns=1 * 10**9, end_ns=6 * 10**9),
    ]
    assert fleet.steady_s(spans) == 5


# -- tables --------------------------------------------------------------------------------------


def heads_in_document() -> list[str]:
    text = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text()
    return [line for line in text.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize("table", [trial.table, cold.table, reports.table, held.table, fleet.table])
def test_head_of_each_table_is_that_of_the_document(table: Callable[..., str]) -> None:
    if table is trial.table:
        head = trial.table([a_timed(n_stored) for n_stored in (400, 5000, 50_000)])
    else:
        head = table([])
    assert head.splitlines()[0] in heads_in_document()


def a_timed(n_stored: int) -> trial.Timed:
    return trial.Timed(
        system="tuner",
        database="sqlite",
        n_stored=n_stored,
        n_reports=20,
        n_timed=10,
        wall_ms=n_stored / 100,
        cpu_ms=1,
        transactions=4.21,
        load_before=0,
    )


def test_table_of_trials_has_a_column_for_each_number_stored() -> None:
    assert trial.table([a_timed(5000), a_timed(400)]).splitlines() == [
        "| database | system | 400 stored | 5,000 stored | transactions |",
        "|---|---|---|---|---|",
        "| sqlite | tuner | 4.0 ms (1.0) | 50.0 ms (1.0) | 4.2 |",
    ]


def a_run(efficiency: float | None, problem: str | None = None) -> fleet.Run:
    return fleet.Run(
        system="tuner",
        title="tuner",
        repeat=1,
        programs=6,
        slots=8,
        trials=10,
        duration_s=0.5,
        wall_s=60,
        efficiency=efficiency,
        steady_efficiency=efficiency,
        first_start_s=2,
        peak_concurrency=48,
        cpu_ms_of_a_trial=10,
        load_before=0,
        problem=problem,
    )


def test_table_of_the_fleet_has_medians_of_good_runs() -> None:
    rows = fleet.table([a_run(0.5), a_run(None, "failed"), a_run(0.9)]).splitlines()[2:]
    assert rows == ["| tuner | 0.70 | 0.70 | 60.0 s | 2.0 s | 48 | 10 ms | 2 of 3 |"]
    (row,) = fleet.table([a_run(None, "failed with exit codes 1")]).splitlines()[2:]
    assert row == "| tuner | failed with exit codes 1 | | | | | | 0 of 1 |"
    assert row.count("|") == rows[0].count("|")


def test_trial_program_of_the_fleet_writes_spans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_EVENTS", str(tmp_path / "events.jsonl"))
    monkeypatch.setenv("FLEET_SECONDS", "0")
    program = (fleet.PROGRAMS / "fleet_trial.py").read_text()
    names: dict[str, Callable[[float, int], float]] = {}
    exec(program, names)
    assert names["train_for"](0.25, 7) == 0.25
    span = Span(**json.loads((tmp_path / "events.jsonl").read_text()))
    assert (span.trial, span.slot) == ("7", None)
