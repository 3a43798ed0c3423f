"""The studies that `every_page` looks at: a long one of all outcomes, and a week of eight GPUs.

The long one is `benchmarks.database.stored` with pruned and failed trials, a metric besides the
objective in each report, an attribute, energy, and a second study to compare with.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import optuna
import sqlalchemy as sa
from optuna.study import StudyDirection

from benchmarks.database.stored import STUDY, make_study
from tests.integration.app.devices.device_week import add_week
from tuner.store.connection.database import open_database
from tuner.store.optuna_tables.statements import OBJECTIVES_ATTR
from tuner.store.schema.models import SCHEMA_REVISION

#: A run of the same study, as the dashboard's band over seeds has it.
OTHER_STUDY = f"{STUDY}-2"
#: A study of two objectives, with as many trials as the long one.
PARETO_STUDY = f"{STUDY}-pareto"
#: Trials of the other study for each one of the long study.
_SHARE_OF_OTHER = 10
_N_REPORTS_OF_PRUNED = 15
_IS_PRUNED, _IS_FAILED = "number % 3 = 1", "number % 97 = 5"

_OUTCOMES = (
    f"UPDATE trials SET state = 'PRUNED' WHERE {_IS_PRUNED}",
    f"UPDATE trials SET state = 'FAIL' WHERE {_IS_FAILED}",
    f"""UPDATE tuner_attempts SET outcome = 'pruned'
        WHERE trial_id IN (SELECT trial_id FROM trials WHERE {_IS_PRUNED})""",
    f"""UPDATE tuner_attempts SET outcome = 'failed', cause = 'exception'
        WHERE trial_id IN (SELECT trial_id FROM trials WHERE {_IS_FAILED})""",
    f"""DELETE FROM trial_intermediate_values WHERE step > {_N_REPORTS_OF_PRUNED}
        AND trial_id IN (SELECT trial_id FROM trials WHERE {_IS_PRUNED})""",
    f"""UPDATE trial_values SET value = (SELECT intermediate_value FROM trial_intermediate_values i
            WHERE i.trial_id = trial_values.trial_id AND i.step = {_N_REPORTS_OF_PRUNED})
        WHERE trial_id IN (SELECT trial_id FROM trials WHERE {_IS_PRUNED})""",
    f"""DELETE FROM trial_values
        WHERE trial_id IN (SELECT trial_id FROM trials WHERE {_IS_FAILED})""",
)
_FACTS = (
    """INSERT INTO tuner_metrics (attempt_id, step, name, value)
        SELECT trial_id, step, 'latency_ms', 5 + 20 * intermediate_value
        FROM trial_intermediate_values""",
    """INSERT INTO trial_user_attributes (trial_id, key, value_json)
        SELECT trial_id, 'size_mb', number % 512 / 2.0 FROM trials""",
    """INSERT INTO tuner_attempt_usage (attempt_id, device_id, covered_ms, utilization_pct_ms,
            utilization_max_pct, memory_mib_ms, memory_max_mib, energy_mj)
        SELECT attempt_id, device_id, 60000, 80 * 60000, 99, 9000 * 60000, 9500,
            18000000 + attempt_id % 1000 FROM tuner_leases""",
)
#: Some trials of the long study, for another one.
_COPIED = (
    """INSERT INTO trials (trial_id, number, study_id, state, datetime_start, datetime_complete)
        SELECT trial_id + :more, number, :study_id, state, datetime_start, datetime_complete
        FROM trials WHERE number < :n AND trial_id <= :n""",
    """INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json)
        SELECT trial_id + :more, param_name, param_value, distribution_json
        FROM trial_params WHERE trial_id <= :n""",
    """INSERT INTO trial_values (trial_id, objective, value, value_type)
        SELECT trial_id + :more, objective, value * 1.01, value_type
        FROM trial_values WHERE trial_id <= :n""",
)
#: The front is where the product of both objectives is the least.
_SECOND_VALUE = """INSERT INTO trial_values (trial_id, objective, value, value_type)
    SELECT trial_id, 1, (1 + trial_id * 104729 % 1013 / 100.0) / (0.05 + value), value_type
    FROM trial_values WHERE trial_id > :more"""


@contextmanager
def kept_database(folder: Path | None, name: str, fill: Callable[[str], None]) -> Iterator[Path]:
    """An SQLite file; in `folder` it stays for the next call."""
    if folder is None:
        with (
            tempfile.TemporaryDirectory(prefix="bench-dashboard-") as made,
            kept_database(Path(made), name, fill) as path,
        ):
            yield path
        return
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.resolve() / f"{name}-{SCHEMA_REVISION}.db"
    if not path.exists():
        partial = path.with_suffix(".partial")
        for left in partial.parent.glob(f"{partial.name}*"):  # By a call that was interrupted.
            left.unlink()
        fill(f"sqlite:///{partial}")
        partial.rename(path)
    yield path


def fill_long_study(url: str, n_trials: int, n_reports: int) -> None:
    """A long study, a shorter one of the same objective, and one of two objectives."""
    make_study(url, n_trials, n_reports)
    n_other = max(1, n_trials // _SHARE_OF_OTHER)
    with closing(open_database(url)) as database:
        for name, objectives in ((OTHER_STUDY, ["loss"]), (PARETO_STUDY, ["loss", "latency"])):
            directions = [StudyDirection.MINIMIZE] * len(objectives)
            study = optuna.create_study(
                storage=database.storage, study_name=name, directions=directions
            )
            study.set_user_attr(OBJECTIVES_ATTR, objectives)
        with database.engine.begin() as connection:
            for statement in (*_OUTCOMES, *_FACTS):
                connection.execute(sa.text(statement))
            _copy(connection, OTHER_STUDY, n_other, more=n_trials)
            _copy(connection, PARETO_STUDY, n_trials, more=n_trials + n_other)
            connection.execute(sa.text(_SECOND_VALUE), {"more": n_trials + n_other})
        _checkpoint(database.engine)


def _copy(connection: sa.Connection, name: str, n: int, *, more: int) -> None:
    found = sa.text("SELECT study_id FROM studies WHERE study_name = :name")
    study_id = connection.execute(found, {"name": name}).scalar_one()
    values = {"more": more, "n": n, "study_id": study_id}
    for statement in _COPIED:
        used = {key: value for key, value in values.items() if f":{key}" in statement}
        connection.execute(sa.text(statement), used)


def fill_week(url: str) -> None:
    """8,064 trials of ten minutes on eight GPUs, with their samples and idle times."""
    with closing(open_database(url)) as database:
        add_week(url, datetime.now(UTC))
        _checkpoint(database.engine)


def _checkpoint(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
