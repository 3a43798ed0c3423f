"""Commands to a study from any terminal, as rows that its dispatchers read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

import sqlalchemy as sa

from tuner.domain.messages import Json
from tuner.store.connection.transactions import Access
from tuner.store.schema.models import CommandRow, DispatcherRow, table_of
from tuner.store.schema.statements import as_stored, insert_row

_COMMANDS = table_of(CommandRow)
_DISPATCHERS = table_of(DispatcherRow)
_INSERT = sa.insert(_COMMANDS)
_NEWEST = sa.select(sa.func.max(_COMMANDS.c.id)).where(
    _COMMANDS.c.study_id == sa.bindparam("b_study_id")
)
_LATER = (
    sa.select(_COMMANDS)
    .where(
        _COMMANDS.c.study_id == sa.bindparam("b_study_id"),
        _COMMANDS.c.id > sa.bindparam("b_after"),
    )
    .order_by(_COMMANDS.c.id)
)

#: Ids are assigned before a row is committed: a row may become visible after rows with higher ids
#: were read. This many ids, of all studies, are read again.
_N_LOOKED_BACK = 1000

#: Name of the event for a refused command; otherwise the event has the order's name.
REFUSED = "refused"
#: Key in a command's arguments: the recipient.
_TO = "to"
#: Key in a command's arguments: the command is kept for the next start, with the replaced values of
#: the study file.
_KEPT = "kept_over"
#: Key in the arguments of `retry`: the number of the new trial.
NEW_TRIAL = "new_trial"


class Order(Enum):
    """Kinds of commands."""

    #: No trial starts any more, including in dispatchers that start later; running trials continue.
    PAUSE = "pause"
    RESUME = "resume"
    #: As Ctrl-C; of one trial, its end.
    STOP = "stop"
    #: Other limits.
    SET = "set"
    #: A new trial with the parameters of an ended one; it exists when this is read.
    RETRY = "retry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Addressee:
    """One dispatcher of a study.

    Its id decides: host names and pids are equal in containers that share the network of a host.
    """

    dispatcher_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command."""

    order: Order
    #: None for the whole study.
    trial_number: int | None = None
    arguments: Mapping[str, Json]
    #: `user@host`.
    asked_by: str
    #: The dispatcher that is meant; None for all of the study.
    to: Addressee | None = None
    #: If no dispatcher worked on the study, so that the command is kept for the next start: the
    #: known values of the same keys in the study file.
    kept_over: Mapping[str, Json] | None = None


class Commands:
    """The commands to a study's dispatchers, read by one of them.

    Args:
        access: Runs transactions on the database.
        study_id: Id of the study.
        dispatcher_id: Id of that dispatcher.
    """

    def __init__(self, access: Access, study_id: int, *, dispatcher_id: int) -> None:
        self._access = access
        self._study_id = study_id
        self._self = Addressee(dispatcher_id=dispatcher_id)
        self._newest_id: int = access.run(
            lambda c: c.execute(_NEWEST, {"b_study_id": study_id}).scalar() or 0
        )
        #: Rows in the re-read window that were already processed.
        self._read_ids: set[int] = set()
        #: Id of the newest pause or resume that was read.
        self._newest_switch_id = 0
        # Earlier commands were for other dispatchers, except those kept for this start.
        self._take(access.run(self._later))
        #: Commands sent while no dispatcher worked on the study; read first.
        self.kept = access.run(lambda c: kept_commands(c, study_id, before_id=dispatcher_id))
        #: The user who paused the study earlier, unless it was resumed since.
        self.paused_by = access.run(lambda c: paused_by(c, study_id))
        #: Commands to the study that this one belongs to.
        self._above: Commands | None = None

    def follow(self, above: Commands) -> None:
        """Applies commands that stop or pause another study to this one, from its unread ones on.

        Args:
            above: Commands of the study that this one belongs to; they have no other reader any
                more.
        """
        self._above = above

    def read(self) -> list[Command]:
        """New commands since the last call.

        Raises:
            Unavailable: If the database does not answer; then no command is missed.
        """
        above = self._above
        # Together: where one cannot be read, nothing is missed of the other.
        rows, rows_above = self._access.run(
            lambda c: (self._later(c), [] if above is None else above._later(c))
        )
        found = self._take(rows)
        if above is not None:
            found += [each for each in above._take(rows_above) if _holds_below(each)]
        found = [*self.kept, *found]
        self.kept = []
        return [command for command in found if command.to in (None, self._self)]

    def _later(self, connection: sa.Connection) -> Sequence[sa.Row[Any]]:
        asked = {"b_study_id": self._study_id, "b_after": self._newest_id - _N_LOOKED_BACK}
        rows = connection.execute(_LATER, asked)
        return [row for row in rows if row.id not in self._read_ids]

    def _take(self, rows: Sequence[sa.Row[Any]]) -> list[Command]:
        self._newest_id = max([self._newest_id, *(row.id for row in rows)])
        self._read_ids.update(row.id for row in rows)
        oldest_id = self._newest_id - _N_LOOKED_BACK
        self._read_ids = {each for each in self._read_ids if each > oldest_id}
        known = {order.value for order in Order}
        found = [row for row in rows if row.name in known and not self._is_overtaken(row)]
        switch_ids = (row.id for row in found if row.name in _SWITCHES)
        self._newest_switch_id = max([self._newest_switch_id, *switch_ids])
        return [_command(row) for row in found]

    def _is_overtaken(self, row: sa.Row[Any]) -> bool:
        """Whether a pause or resume became visible after a newer one, which `paused_by` follows."""
        return row.name in _SWITCHES and row.id < self._newest_switch_id


#: Only the newest of these applies.
_SWITCHES = (Order.PAUSE.value, Order.RESUME.value)

#: Commands that also apply to the confirmation runs of a study's leaders.
OF_THE_WHOLE = (Order.PAUSE, Order.RESUME, Order.STOP)


def _holds_below(command: Command) -> bool:
    return command.order in OF_THE_WHOLE and command.trial_number is None


def insert_command(
    connection: sa.Connection, study_id: int, command: Command, *, at: datetime
) -> int:
    """Sends a command; the study's dispatchers read it soon."""
    row = {
        "study_id": study_id,
        "name": command.order.value,
        "trial_number": command.trial_number,
        "arguments": {**command.arguments, **_address(command.to), **_kept(command)},
        "asked_by": command.asked_by,
        "asked_at": as_stored(at),
    }
    return insert_row(connection, _INSERT, row)


def paused_by(connection: sa.Connection, study_id: int) -> str:
    """The user who paused a study, `user@host`; empty if it is not paused."""
    query = (
        sa.select(_COMMANDS.c.name, _COMMANDS.c.asked_by)
        .where(_COMMANDS.c.study_id == study_id, _COMMANDS.c.name.in_(_SWITCHES))
        .order_by(_COMMANDS.c.id.desc())
        .limit(1)
    )
    last = connection.execute(query).first()
    return str(last.asked_by) if last is not None and last.name == Order.PAUSE.value else ""


def kept_commands(
    connection: sa.Connection, study_id: int, *, before_id: int | None = None
) -> list[Command]:
    """Commands since a study's last start, sent while no dispatcher worked on it; oldest first.

    Args:
        connection: Connection to the database.
        study_id: Id of the study.
        before_id: Id of a dispatcher whose start, and later ones, are ignored.
    """
    starts = sa.select(sa.func.max(_DISPATCHERS.c.started_at)).where(
        _DISPATCHERS.c.study_id == study_id
    )
    if before_id is not None:
        starts = starts.where(_DISPATCHERS.c.id < before_id)
    last_start = connection.execute(starts).scalar()
    query = sa.select(_COMMANDS).where(
        _COMMANDS.c.study_id == study_id, _COMMANDS.c.name == Order.SET.value
    )
    if last_start is not None:
        query = query.where(_COMMANDS.c.asked_at > last_start)
    found = map(_command, connection.execute(query.order_by(_COMMANDS.c.id)))
    return [each for each in found if each.kept_over is not None]


def _kept(command: Command) -> dict[str, Json]:
    return {} if command.kept_over is None else {_KEPT: dict(command.kept_over)}


def _address(to: Addressee | None) -> dict[str, Json]:
    return {} if to is None else {_TO: {"dispatcher_id": to.dispatcher_id}}


def _command(row: sa.Row[Any]) -> Command:
    arguments = dict(row.arguments)
    to = arguments.pop(_TO, None)
    kept_over = arguments.pop(_KEPT, None)
    return Command(
        order=Order(row.name),
        trial_number=row.trial_number,
        arguments=arguments,
        asked_by=row.asked_by,
        to=Addressee(dispatcher_id=to.get("dispatcher_id", 0)) if to else None,
        kept_over=kept_over,
    )
