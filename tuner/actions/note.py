"""Writes the note and the tags of a trial or of a study."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from tuner.errors import ConfigError
from tuner.queries.locate import Place, choose_study, writing
from tuner.queries.notes import note_attr
from tuner.store.optuna_tables.statements import TRIALS
from tuner.store.optuna_tables.studies import set_user_attr

#: Characters.
MAX_TEXT, MAX_TAG, MAX_TAGS = 4000, 40, 20


def tags_in(text: str) -> list[str]:
    """Words between commas, each once, in their order.

    Raises:
        ConfigError: If there are too many, or one is too long.
    """
    tags = list(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    if len(tags) > MAX_TAGS:
        raise ConfigError(f"has {len(tags)} tags, but at most {MAX_TAGS} fit.", key="Tags")
    for tag in tags:
        if len(tag) > MAX_TAG:
            problem = f"has a tag of {len(tag)} characters, but at most {MAX_TAG} fit."
            raise ConfigError(problem, key="Tags")
    return tags


def write_note(
    place: Place, number: int | None, text: str, tags: Sequence[str], now: datetime, *, who: str
) -> None:
    """Replaces a note and its tags; removes them if both are empty.

    Args:
        place: The study.
        number: Number of a trial; None for the study itself.
        text: Plain text.
        tags: As `tags_in` returns them.
        now: The current time.
        who: `user@host`.

    Raises:
        TunerError: If there is no such trial, or the text is too long.
    """
    kept = text.replace("\0", "").strip()
    if len(kept) > MAX_TEXT:
        raise ConfigError(
            f"has {len(kept)} characters, but at most {MAX_TEXT} fit. Shorten it.", key="Note"
        )
    with writing(place) as (_, connection):
        study = choose_study(connection, place)
        if number is not None:
            _check_trial(connection, study.id, study.name, number)
        noted = {"text": kept, "tags": list(tags), "who": who, "at": now.isoformat()}
        set_user_attr(connection, study.id, note_attr(number), noted)


def _check_trial(connection: sa.Connection, study_id: int, study: str, number: int) -> None:
    query = sa.select(TRIALS.c.trial_id).where(
        TRIALS.c.study_id == study_id, TRIALS.c.number == number
    )
    if connection.execute(query).first() is None:
        raise ConfigError(f"There is no trial {number} in study {study!r}.")
