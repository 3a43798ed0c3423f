"""Notes and tags of users on trials and on a study."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from tuner.store.optuna_tables.statements import STUDY_ATTRS

#: User attribute of the study, which also holds notes on its trials: Optuna changes no attribute of
#: an ended trial.
NOTE_ATTR = "tuner:note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note with its tags."""

    text: str
    tags: tuple[str, ...]
    #: `user@host`.
    who: str
    at: datetime


def note_attr(number: int | None) -> str:
    """The attribute that holds a note.

    Args:
        number: Number of a trial; None for the study itself.
    """
    return NOTE_ATTR if number is None else f"{NOTE_ATTR}:{number}"


def read_notes(connection: sa.Connection, study_id: int) -> Mapping[int | None, Note]:
    """By the number of the trial; None: on the study itself. Those that are empty are left out."""
    query = sa.select(STUDY_ATTRS.c.key, STUDY_ATTRS.c.value_json).where(
        STUDY_ATTRS.c.study_id == study_id, STUDY_ATTRS.c.key.startswith(NOTE_ATTR)
    )
    found: dict[int | None, Note] = {}
    for key, value_json in connection.execute(query):
        number = key.removeprefix(NOTE_ATTR).removeprefix(":")
        stored = json.loads(value_json)
        if (number and not number.isdecimal()) or not isinstance(stored, dict):
            continue  # Another program's.
        if stored.get("text") or stored.get("tags"):
            found[int(number) if number else None] = _note(stored)
    return found


def read_study_notes(connection: sa.Connection) -> Mapping[int, Note]:
    """Notes on studies themselves, by the study's id."""
    query = sa.select(STUDY_ATTRS.c.study_id, STUDY_ATTRS.c.value_json).where(
        STUDY_ATTRS.c.key == NOTE_ATTR
    )
    rows = [(study_id, json.loads(text)) for study_id, text in connection.execute(query)]
    return {
        study_id: _note(stored)
        for study_id, stored in rows
        if isinstance(stored, dict) and (stored.get("text") or stored.get("tags"))
    }


def _note(stored: Mapping[str, object]) -> Note:
    tags = stored.get("tags")
    return Note(
        text=str(stored.get("text", "")),
        tags=tuple(map(str, tags)) if isinstance(tags, list) else (),
        who=str(stored.get("who", "")),
        at=datetime.fromisoformat(str(stored.get("at"))),
    )
