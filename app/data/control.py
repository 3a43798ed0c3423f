"""Commands from a page: the same as on the command line, recorded with the user.

The only part of the dashboard that writes. It opens a connection for each command, and only after
`tuner.app.data.permission` has identified the user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from tuner.actions.commands import order, read_limits
from tuner.actions.config_input import read_given
from tuner.actions.enqueue import enqueue
from tuner.actions.note import tags_in, write_note
from tuner.actions.retry import retry
from tuner.domain.budget import SECONDS_PER_HOUR
from tuner.domain.messages import Json
from tuner.errors import ConfigError
from tuner.queries.dispatchers import StoredDispatcher, has_our_tables
from tuner.queries.locate import Place, StoredStudy
from tuner.queries.status import Progress, read_progress
from tuner.queries.studies import read_studies
from tuner.store.optuna_tables.statements import in_zone
from tuner.store.records.commands import Command, Order, paused_by
from tuner.store.schema.models import CommandRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Sends commands to one study on behalf of one user.

    Raises:
        TunerError: Each method, if no dispatcher could execute the command.
    """

    place: Place
    who: str

    def order(
        self,
        wanted: Order,
        now: datetime,
        *,
        trial: int | None = None,
        arguments: Mapping[str, Json] | None = None,
    ) -> str:
        """Sends a command; returns a message to show."""
        command = Command(
            order=wanted, trial_number=trial, arguments=arguments or {}, asked_by=self.who
        )
        done = order(self.place, command, now)
        hearers = ", ".join(done.places) or "none now; it is kept for the next start"
        of_what = f"trial {trial}" if trial is not None else f"study {done.study!r}"
        return f"Sent to {of_what}: {wanted.value}. Dispatchers: {hearers}."

    def set_budget(self, name: str, text: str, now: datetime) -> str:
        """`name` is `trials`, `time`, `device_hours` or `energy`."""
        limits = read_limits([f"budget.{name}={text}"])
        done = self.order(Order.SET, now, arguments=limits)
        return f"{done} A later start reads the study file: change it there, too."

    def retry(self, number: int, now: datetime) -> str:
        done = retry(self.place, number, now, asked_by=self.who)
        return f"Trial {done.new_number} waits, with the parameters of trial {number}."

    def note(self, number: int | None, text: str, tags: str, now: datetime) -> str:
        """Sets the note and the tags of a trial, or of the study if `number` is None."""
        write_note(self.place, number, text, tags_in(tags), now, who=self.who)
        return f"Noted on {'the study' if number is None else f'trial {number}'}."

    def enqueue(self, text: str) -> str:
        """Configurations as YAML or JSON; never a file's name: this machine would read it."""
        stripped = text.strip()
        if not stripped.startswith(("{", "[")):
            problem = "must be a configuration such as {lr: 0.1}, or a list of them in [ ]."
            raise ConfigError(problem, key="What to try")
        done = enqueue(self.place, read_given([stripped]), skip_existing=False, asked_by=self.who)
        return f"Enqueued: {', '.join(f'trial {each}' for each in done.trial_numbers)}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The current state of a study."""

    progress: Progress
    #: `user@host`; empty if it is not paused.
    paused_by: str
    #: None if it is not paused.
    paused_at: datetime | None
    #: Since when dispatchers have worked on it without a pause, and the user who started or resumed
    #: it; None and empty if none works on it.
    running_since: datetime | None
    running_by: str

    @property
    def spent(self) -> dict[str, tuple[float | None, float]]:
        """Limit and amount spent, by the name of the limit; time in seconds."""
        budget, spent = self.progress.budget, self.progress.spent
        return {
            "trials": (budget.trials, spent.trials),
            "time": (budget.time_s, spent.time_s),
            "device_hours": (budget.device_hours, spent.device_s / SECONDS_PER_HOUR),
            "energy": (budget.energy_kwh, spent.energy_kwh),
        }


def read_present(connection: sa.Connection, study_id: int, now: datetime) -> Present:
    (summary,) = read_studies(connection, now, study_id)
    who = paused_by(connection, study_id) if has_our_tables(connection) else ""
    switches = [each for each in read_asked(connection, study_id) if each.what in _SWITCHES]
    pauses = [each.at for each in switches if each.what == Order.PAUSE.value]
    since, by = (None, "") if who else _running(summary.dispatchers, switches)
    return Present(
        progress=read_progress(connection, summary),
        paused_by=who,
        paused_at=in_zone(pauses[0]) if who and pauses else None,
        running_since=since,
        running_by=by,
    )


def _running(
    dispatchers: Sequence[StoredDispatcher], switches: Sequence[Asked]
) -> tuple[datetime | None, str]:
    """The start of the oldest dispatcher that is alive, or a later resume."""
    alive = [each for each in dispatchers if each.is_alive]
    if not alive:
        return None, ""
    first = min(alive, key=lambda each: each.started_at)
    newest = switches[0] if switches else None
    if newest and newest.what == Order.RESUME.value and in_zone(newest.at) > first.started_at:
        return in_zone(newest.at), newest.who
    return first.started_at, f"{first.host} (pid {first.pid})"


def limit_of(name: str, text: str) -> float:
    """The value of a new limit: trials, seconds, device-hours or kWh.

    Raises:
        ConfigError: If it is no such limit.
    """
    (value,) = read_limits([f"budget.{name}={text}"]).values()
    if not isinstance(value, int | float):
        raise ConfigError(f"is {text!r}, but must be a number.", key=f"budget.{name}")
    return float(value)


def place_of(url: str, study: StoredStudy, shown_url: str) -> Place:
    return Place(url=url, study=study.name, shown=shown_url)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A command that was sent."""

    at: datetime
    who: str
    what: str


def read_asked(connection: sa.Connection, study_id: int, *, most: int = 50) -> list[Asked]:
    """The newest commands first. Enqueued and retried trials record this themselves."""
    if not has_our_tables(connection):
        return []
    query = (
        sa.select(CommandRow)
        .where(CommandRow.study_id == study_id)
        .order_by(CommandRow.id.desc())
        .limit(most)
    )
    return [_asked(row) for row in connection.execute(query.with_only_columns(*_COLUMNS))]


_SWITCHES = (Order.PAUSE.value, Order.RESUME.value)
_COLUMNS = (
    CommandRow.asked_at,
    CommandRow.asked_by,
    CommandRow.name,
    CommandRow.trial_number,
    CommandRow.arguments,
)


def _asked(row: sa.Row[datetime, str, str, int | None, dict[str, object]]) -> Asked:
    what = row.name if row.trial_number is None else f"{row.name} trial {row.trial_number}"
    told = ", ".join(f"{key}={value}" for key, value in (row.arguments or {}).items())
    return Asked(at=row.asked_at, who=row.asked_by, what=f"{what} {told}".strip())
