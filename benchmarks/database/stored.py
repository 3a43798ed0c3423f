"""A study of many completed trials with long curves, written into a database in a few statements.

The curves come from the database itself (`INSERT ... SELECT`): ten million rows in half a minute.
"""

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import sqlalchemy as sa
from optuna.distributions import (
    BaseDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
)
from optuna.pruners import BasePruner, MedianPruner
from optuna.samplers import RandomSampler
from optuna.storages._rdb import models
from optuna.trial import TrialState

from tuner.config import Direction
from tuner.devices.cpu_slots.probe import CpuProbe
from tuner.domain.attempt import AttemptState, Outcome
from tuner.search.study import StudySearch
from tuner.search_spaces import parse_space
from tuner.store.connection.database import Database, open_database
from tuner.store.records.dispatchers.starts import device_id_of, host_id_of
from tuner.store.records.provenance import host_facts
from tuner.store.schema.models import (
    SCHEMA_REVISION,
    AttemptRow,
    DispatcherRow,
    LeaseRow,
    table_of,
)

STUDY = "bench"
OBJECTIVE = "loss"
SPACE = parse_space(
    {
        "lr": {"type": "float", "low": 1e-5, "high": 1e-1, "log": True},
        "dropout": {"type": "float", "low": 0.0, "high": 0.5},
        "width": {"type": "int", "low": 16, "high": 1024, "log": True},
        "depth": {"type": "int", "low": 1, "high": 8},
    }
)

_BEGAN_AT = datetime(2026, 1, 1)
_LASTED = timedelta(seconds=60)
_TRIALS_AT_A_TIME = 5000
_TRIALS = models.TrialModel.__table__
_CURVES = models.TrialIntermediateValueModel.__table__
_IDS = {"trials": "trial_id", "tuner_attempts": "id", "tuner_leases": "id"}


def level_of(number: int) -> float:
    """What a stored trial's curve falls to, 0 to 1: `level + 1 / step`."""
    return number * 7919 % 1009 / 1009


def value_at(step: int) -> float:
    """The curve of a trial that is measured: below all that are stored, so that none is pruned."""
    return 1 / step - 1


def open_search(database: Database, pruner: BasePruner | None = None) -> StudySearch:
    """The study as a dispatcher opens it, with random sampling and the pruner that is default."""
    return StudySearch(
        database.storage,
        STUDY,
        objectives={OBJECTIVE: Direction.MINIMIZE},
        space=SPACE,
        sampler=RandomSampler(),
        pruner=pruner or MedianPruner(),
    )


@contextmanager
def kept_study(folder: Path | None, n_trials: int, n_reports: int) -> Iterator[str]:
    """The URL of an SQLite file with such a study; in `folder` it stays for the next call."""
    if folder is None:
        with (
            tempfile.TemporaryDirectory(prefix="bench-database-") as made,
            kept_study(Path(made), n_trials, n_reports) as url,
        ):
            yield url
        return
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.resolve() / f"study-{n_trials}x{n_reports}-{SCHEMA_REVISION}.db"
    if not path.exists():
        partial = path.with_suffix(".partial")
        for left in partial.parent.glob(f"{partial.name}*"):  # By a call that was interrupted.
            left.unlink()
        make_study(f"sqlite:///{partial}", n_trials, n_reports)
        partial.rename(path)
    yield f"sqlite:///{path}"


def make_study(url: str, n_trials: int, n_reports: int) -> None:
    """Makes the tables and the study, and fills it with completed trials of one attempt each."""
    with closing(open_database(url)) as database:
        study_id = open_search(database).study_id
        with database.engine.begin() as connection:
            _insert_trials(connection, study_id, n_trials)
            _insert_curves(connection, n_reports)
            _insert_attempts(connection, study_id)
            if connection.dialect.name == "postgresql":
                for table, column in _IDS.items():
                    connection.execute(
                        sa.text(
                            f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), "
                            f"(SELECT coalesce(max({column}), 1) FROM {table}))"
                        )
                    )
        _let_it_settle(database.engine)


def _insert_trials(connection: sa.Connection, study_id: int, n_trials: int) -> None:
    random = Random(0)
    distributions = {each.name: each.distribution for each in SPACE.parameters}
    texts = {name: distribution_to_json(each) for name, each in distributions.items()}
    for start in range(0, n_trials, _TRIALS_AT_A_TIME):
        numbers = range(start, min(start + _TRIALS_AT_A_TIME, n_trials))
        connection.execute(sa.insert(_TRIALS), [_trial(study_id, number) for number in numbers])
        rows = [
            {
                "trial_id": number + 1,
                "param_name": name,
                "param_value": _draw(distribution, random),
                "distribution_json": texts[name],
            }
            for number in numbers
            for name, distribution in distributions.items()
        ]
        connection.execute(sa.insert(models.TrialParamModel.__table__), rows)


def _trial(study_id: int, number: int) -> dict[str, object]:
    at = _BEGAN_AT + number * _LASTED
    times = {"datetime_start": at, "datetime_complete": at + _LASTED}
    state = TrialState.COMPLETE
    return {"trial_id": number + 1, "number": number, "study_id": study_id, "state": state, **times}


def _draw(distribution: BaseDistribution, random: Random) -> float:
    if isinstance(distribution, IntDistribution):
        return random.randint(distribution.low, distribution.high)
    assert isinstance(distribution, FloatDistribution), "the space has numbers only"
    return random.uniform(distribution.low, distribution.high)


def _insert_curves(connection: sa.Connection, n_reports: int) -> None:
    """Curves and values, as `level_of` has them."""
    level = _TRIALS.c.number * 7919 % 1009 / sa.literal(1009.0, sa.Double())
    first = sa.select(sa.literal(1).label("step")).cte("steps", recursive=True)
    steps = first.union_all(sa.select(first.c.step + 1).where(first.c.step < n_reports))
    finite = models.TrialIntermediateValueModel.TrialIntermediateValueType.FINITE
    points = sa.select(
        _TRIALS.c.trial_id,
        steps.c.step,
        level + sa.literal(1.0, sa.Double()) / steps.c.step,
        sa.literal(finite, _CURVES.c.intermediate_value_type.type),
    ).select_from(_TRIALS.join(steps, sa.true()))
    connection.execute(_from_select(_CURVES, points))
    values = models.TrialValueModel.__table__
    kind = models.TrialValueModel.TrialValueType.FINITE
    ends = sa.select(
        _TRIALS.c.trial_id,
        sa.literal(0),
        level + 1 / n_reports,
        sa.literal(kind, values.c.value_type.type),
    )
    connection.execute(_from_select(values, ends))


def _from_select(table: sa.Table, query: sa.Select[*tuple[object, ...]]) -> sa.Insert:
    """All columns but the first, which counts by itself."""
    return sa.insert(table).from_select([column.name for column in table.columns][1:], query)


def _insert_attempts(connection: sa.Connection, study_id: int) -> None:
    """What the tuner itself notes of trials: without it a start would have less to read."""
    host = host_facts()
    host_id = host_id_of(connection, host)
    device_id = device_id_of(connection, host_id, CpuProbe(1).devices()[0])
    dispatcher = {
        "study_id": study_id,
        "host_id": host_id,
        "pid": host.pid,
        "process_created_at_s": host.process_created_at_s,
        "started_at": _BEGAN_AT,
        "beat_at": _BEGAN_AT,
        "ended_at": _BEGAN_AT,
        "seed": 0,
        "study_file": "",
        "folder": "",
        "versions": {},
    }
    made = connection.execute(sa.insert(table_of(DispatcherRow)), dispatcher).inserted_primary_key
    assert made is not None
    began, ended = _TRIALS.c.datetime_start, _TRIALS.c.datetime_complete
    attempts, leases = table_of(AttemptRow), table_of(LeaseRow)
    attempt = {
        "id": _TRIALS.c.trial_id,
        "dispatcher_id": sa.literal(made[0]),
        "trial_id": _TRIALS.c.trial_id,
        "number": sa.literal(1),
        "state": sa.literal(AttemptState.FINISHED, attempts.c.state.type),
        "outcome": sa.literal(Outcome.COMPLETED, attempts.c.outcome.type),
        "detail": sa.literal(""),
        "params": sa.literal({}, attempts.c.params.type),
        "seed": sa.literal(0),
        "log_path": sa.literal(""),
        "leased_at": began,
        "started_at": began,
        "ended_at": ended,
        "finished_at": ended,
    }
    lease = {
        "attempt_id": _TRIALS.c.trial_id,
        "device_id": sa.literal(device_id),
        "held_slot": sa.literal(0),
        "share": sa.literal(1.0),
        "leased_at": began,
        "released_at": ended,
    }
    for table, columns in ((attempts, attempt), (leases, lease)):
        query = sa.select(*columns.values())
        connection.execute(sa.insert(table).from_select(list(columns), query))


def _let_it_settle(engine: sa.Engine) -> None:
    """What a database does after so many rows is done now, and not while something is measured."""
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")
    else:
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
