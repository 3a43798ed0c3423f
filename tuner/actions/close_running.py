"""Closes running attempts in the copy of a database, where nothing runs them."""

from __future__ import annotations

from datetime import datetime

from optuna.trial import TrialState

from tuner.actions.transfer.row_transfer import Change, Row, leave_out
from tuner.config.recorded import recorded_text
from tuner.domain.attempt import AttemptState, Cause, Outcome


class CloseRunning:
    """Changes the rows of a study during a copy, owners before the rows that refer to them.

    Unfinished attempts end as lost, at their dispatcher's last heartbeat, and their trials wait
    again.
    """

    def __init__(self) -> None:
        self._seen_at: dict[int, datetime] = {}
        self._dispatchers: dict[int, int] = {}

    @property
    def changes(self) -> dict[str, Change]:
        """By table."""
        return {
            "trials": _trial,
            "trial_heartbeats": leave_out,
            "tuner_claims": leave_out,
            # They were for this database's dispatchers; their results are in the events.
            "tuner_commands": leave_out,
            "tuner_dispatchers": self._dispatcher,
            "tuner_attempts": self._attempt,
            "tuner_leases": self._lease,
        }

    def _dispatcher(self, row: Row) -> Row:
        self._seen_at[row["id"]] = row["beat_at"]
        # An older tuner has recorded the values of trial.env, too.
        text = recorded_text(row["study_file"])
        return row | {"ended_at": row["ended_at"] or row["beat_at"], "study_file": text}

    def _attempt(self, row: Row) -> Row:
        self._dispatchers[row["id"]] = row["dispatcher_id"]
        if row["state"] is AttemptState.FINISHED:
            return row
        return row | {
            "state": AttemptState.FINISHED,
            "outcome": Outcome.LOST,
            "cause": Cause.DISPATCHER_GONE,
            "detail": "It was running when the study was copied.",
            "finished_at": max(row["leased_at"], self._seen_at[row["dispatcher_id"]]),
        }

    def _lease(self, row: Row) -> Row:
        # The device is free there, even if it is held here.
        seen_at = self._seen_at[self._dispatchers[row["attempt_id"]]]
        released_at = row["released_at"] or max(row["leased_at"], seen_at)
        return row | {"held_device_id": None, "released_at": released_at}


def _trial(row: Row) -> Row:
    return row | {"state": TrialState.WAITING} if row["state"] is TrialState.RUNNING else row
