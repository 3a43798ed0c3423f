"""What the database acknowledged, to whom, and in which order: written by its triggers.

A row of a transaction that was rolled back is gone with it, so that all that is here is committed.
Whoever writes to a dispatcher's trials has first renewed that dispatcher's row, and who takes it
for dead ends that row: the lock on it puts both in an order, which the rows below have, too.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from tests.chaos.nodes.server import NodeServer

_TABLES = (
    *("tuner_dispatchers", "tuner_claims", "tuner_attempts"),
    *("studies", "trials", "trial_values", "trial_intermediate_values"),
    "tuner_uploads",
)
_LONG = "{study_file,folder,versions,budget,devices,params,detail,log_path}"
_INSTALL = f"""
    CREATE TABLE chaos_history (
        seq bigserial PRIMARY KEY, xid bigint DEFAULT txid_current(),
        at_s float8 DEFAULT extract(epoch FROM clock_timestamp()),
        address text DEFAULT host(inet_client_addr()), what text, old jsonb, new jsonb);
    CREATE FUNCTION chaos_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO chaos_history (what, old, new) VALUES (TG_TABLE_NAME,
            CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) - '{_LONG}'::text[] END,
            CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) - '{_LONG}'::text[] END);
        RETURN NULL; END $$
"""
_WATCH = """
    CREATE TRIGGER chaos AFTER INSERT OR UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION chaos_note()
"""
#: By the last row of a transaction: in the order of their commits, where they depended on others.
_READ = """
    SELECT xid, at_s, address, what, old, new FROM (
        SELECT *, max(seq) OVER (PARTITION BY xid) AS last FROM chaos_history) h
    ORDER BY last, seq
"""
_WAITING, _RUNNING = "WAITING", "RUNNING"
_FINISHED = "finished"


@dataclass(frozen=True, kw_only=True)
class Change:
    """A row that was written. `old` or `new` is empty where there is none."""

    xid: int
    #: Seconds since the epoch.
    at_s: float
    #: Of the machine; empty for this one.
    address: str
    table: str
    old: Mapping[str, Any]
    new: Mapping[str, Any]


def install(server: NodeServer) -> None:
    """From now on all changes of the tables, which are there, are noted."""
    server.execute(_INSTALL)
    for table in _TABLES:
        server.execute(_WATCH.format(table=table))


def read(server: NodeServer) -> list[Change]:
    """All of them so far, transaction by transaction."""
    return [
        Change(
            xid=int(str(xid)),
            at_s=float(str(at_s)),
            address=str(address or ""),
            table=str(table),
            old=_decoded(old),
            new=_decoded(new),
        )
        for xid, at_s, address, table, old, new in server.execute(_READ)
    ]


def _decoded(value: object) -> Mapping[str, Any]:
    found = json.loads(value) if isinstance(value, str) else value
    return found if isinstance(found, dict) else {}


def judge(changes: Iterable[Change]) -> Iterator[str]:
    """Whether every write was its owner's; each finding is a sentence."""
    judge = _Judge()
    for _, transaction in groupby(changes, key=lambda change: change.xid):
        yield from judge.take(list(transaction))


def places(changes: Iterable[Change], study: str) -> dict[tuple[int, int], str]:
    """Where each attempt ran, as its dispatcher's connection has it: by trial number and its own.

    Args:
        changes: All of them.
        study: Name of the study.
    """
    found: dict[tuple[int, int], str] = {}
    studies: set[int] = set()
    numbers: dict[int, int] = {}
    dispatchers: dict[int, str] = {}
    for change in changes:
        row = change.new
        if change.old or not row:
            continue
        match change.table:
            case "studies" if row["study_name"] == study:
                studies.add(row["study_id"])
            case "tuner_dispatchers":
                dispatchers[row["id"]] = change.address
            case "trials" if row["study_id"] in studies:
                numbers[row["trial_id"]] = row["number"]
            case "tuner_attempts" if row["trial_id"] in numbers:
                place = dispatchers[row["dispatcher_id"]]
                found[numbers[row["trial_id"]], row["number"]] = place
    return found


def uploads(changes: Iterable[Change], study: str) -> list[tuple[int, int, float]]:
    """Trial, step and time of each checkpoint of a study that an object store acknowledged.

    Not those that a machine which came back has found on its disk and uploaded after another one
    had claimed the trial.
    """
    studies: set[int] = set()
    numbers: dict[int, int] = {}
    owner: dict[int, int] = {}
    dispatcher: dict[int, int] = {}
    found = []
    for change in changes:
        row = change.new
        if change.old or not row:
            continue
        match change.table:
            case "studies" if row["study_name"] == study:
                studies.add(row["study_id"])
            case "trials" if row["study_id"] in studies:
                numbers[row["trial_id"]] = row["number"]
            case "tuner_claims":
                owner[row["trial_id"]] = row["dispatcher_id"]
            case "tuner_attempts":
                dispatcher[row["id"]] = row["dispatcher_id"]
            case "tuner_uploads" if row["trial_id"] in numbers and row["kind"] == "checkpoint":
                trial = row["trial_id"]
                if dispatcher.get(row["attempt_id"]) == owner.get(trial):
                    found.append((numbers[trial], int(row["step"]), change.at_s))
    return found


def taken_over(changes: Iterable[Change], place: str, at_s: float) -> list[float]:
    """When others ended the records of the dispatchers that a machine had at a time.

    Those of dispatchers without an attempt are left out: nothing waits for their end, and where no
    other dispatcher works on the study, the next one that does so for a minute ends them.

    Args:
        changes: All of them.
        place: Address of the machine.
        at_s: The time, seconds since the epoch, as are those that are returned.
    """
    here: set[int] = set()
    attempts: dict[int, set[int]] = defaultdict(set)
    found = []
    for change in changes:
        if change.table == "tuner_attempts" and (row := change.new):
            own = attempts[row["dispatcher_id"]]
            own.discard(row["id"]) if row["state"] == _FINISHED else own.add(row["id"])
        if change.table != "tuner_dispatchers":
            continue
        number = change.new["id"]
        if not change.old and change.address == place and change.at_s <= at_s:
            here.add(number)
        if _has_ended(change) and number in here:
            here.discard(number)
            if change.at_s > at_s and _is_taken_over(change) and attempts[number]:
                found.append(change.at_s)
    return found


def _is_taken_over(change: Change) -> bool:
    """Who ends by itself renews its row with that."""
    return bool(change.old.get("beat_at") == change.new.get("beat_at"))


def _has_ended(change: Change) -> bool:
    return change.old.get("ended_at") is None and change.new.get("ended_at") is not None


@dataclass(kw_only=True)
class _Judge:
    """The state of the tables after the transactions so far."""

    #: Address of each dispatcher.
    address: dict[int, str] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    #: Dispatcher that has claimed a trial.
    owner: dict[int, int] = field(default_factory=dict)
    state: dict[int, str] = field(default_factory=dict)
    #: Attempts of a trial that are not finished, with their dispatchers.
    open: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))

    def take(self, changes: Sequence[Change]) -> Iterator[str]:
        """Judges a transaction, and knows its changes from then on."""
        author = self._author(changes)
        yield from self._judge_dispatchers(changes, author)
        before = dict(self.state)
        for change in changes:
            yield from self._judge_change(change, author, before)
        for trial in {each.new["trial_id"] for each in _of(changes, "tuner_attempts")}:
            if len(self.open[trial]) > 1:
                yield f"trial id {trial} has {len(self.open[trial])} open attempts at once"

    def _author(self, changes: Sequence[Change]) -> int | None:
        """The dispatcher that has begun or renewed its row; None for those that only look after."""
        for each in _of(changes, "tuner_dispatchers"):
            is_renewed = each.old.get("beat_at") != each.new["beat_at"]
            is_batch = each.old.get("n_batches") != each.new["n_batches"]
            if is_renewed or is_batch:
                return int(each.new["id"])
        return None

    def _judge_dispatchers(self, changes: Sequence[Change], author: int | None) -> Iterator[str]:
        for each in _of(changes, "tuner_dispatchers"):
            number = each.new["id"]
            if not each.old:
                self.address[number] = each.address
            if each.old.get("ended_at") is not None:
                yield f"dispatcher {number} was over, and its row changed"
            if number == author and each.address != self.address[number]:
                yield f"dispatcher {number} of {self.address[number]} wrote from {each.address}"
            if each.new["ended_at"] is not None:
                self.ended.add(number)

    def _judge_change(
        self, change: Change, author: int | None, before: Mapping[int, str]
    ) -> Iterator[str]:
        row = change.new or change.old
        match change.table:
            case "tuner_claims":
                yield from self._judge_claim(change, author, before)
            case "tuner_attempts":
                yield from self._judge_attempt(change, author)
            case "trials":
                is_end = row["state"] not in (_WAITING, _RUNNING)
                if is_end and change.old.get("state") != row["state"]:
                    yield from self._judge_owner(row["trial_id"], author, "ended")
                self.state[row["trial_id"]] = row["state"]
            case "trial_values" | "trial_intermediate_values":
                yield from self._judge_owner(row["trial_id"], author, "got a value")

    def _judge_owner(self, trial: int, author: int | None, what: str) -> Iterator[str]:
        if self.owner.get(trial) != author or author is None:
            yield f"trial id {trial} of {self.owner.get(trial)} {what} by {author}"

    def _judge_claim(
        self, change: Change, author: int | None, before: Mapping[int, str]
    ) -> Iterator[str]:
        if not change.new:
            return  # Deleted: by who claims it next, or because its owner is over.
        trial, claimant = change.new["trial_id"], change.new["dispatcher_id"]
        owner = self.owner.get(trial, claimant)
        if claimant != author:
            yield f"trial id {trial} was claimed for {claimant} by {author}"
        if owner not in (claimant, *self.ended) and before.get(trial) != _WAITING:
            yield f"trial id {trial} was {owner}'s, ran, and was claimed by {claimant}"
        self.owner[trial] = claimant

    def _judge_attempt(self, change: Change, author: int | None) -> Iterator[str]:
        row = change.new
        trial, dispatcher = row["trial_id"], row["dispatcher_id"]
        is_cleared_up = dispatcher in self.ended and row["state"] == _FINISHED
        if dispatcher != author and not is_cleared_up:
            yield f"an attempt of trial id {trial} of {dispatcher} was written by {author}"
        if not change.old and self.owner.get(trial) != dispatcher:
            yield f"trial id {trial} of {self.owner.get(trial)} was begun by {dispatcher}"
        if row["state"] == _FINISHED:
            self.open[trial].pop(row["id"], None)
        else:
            self.open[trial][row["id"]] = dispatcher


def _of(changes: Sequence[Change], table: str) -> list[Change]:
    return [change for change in changes if change.table == table and change.new]
