"""`tuner copy`: a new study with the trials of an earlier one and a changed space."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import sqlalchemy as sa
from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.trial import TrialState

from tuner.actions.transfer.refit_trial import LeftOut, refitted
from tuner.actions.transfer.row_transfer import Change, Row, Transfer, leave_out
from tuner.actions.transfer.study_tables import study_tables
from tuner.config import StudyConfig
from tuner.domain.messages import RETURNED_PARAMS_ATTR
from tuner.errors import StoreError
from tuner.queries.locate import Place, StoredStudy, choose_study, reading, refuse_taken, writing
from tuner.queries.studies import Objective, read_objectives
from tuner.queries.trials.params import read_space, read_whole_params
from tuner.search.rungs.table import RUNG_KEY
from tuner.search.samplers.transfer import TRANSFER_ATTR
from tuner.search.study_identity import to_optuna
from tuner.search_spaces import AnySpace, ParamValue, Scalar, SearchSpace, identity, to_json
from tuner.store.connection.database import check_file, open_database, parse_url
from tuner.store.connection.engine import without_idle_limit
from tuner.store.optuna_tables.statements import (
    CONSTRAINTS_ATTR,
    IDENTITY_ATTR,
    METRIC_NAMES_ATTR,
    OBJECTIVES_ATTR,
    PARAMS,
    SPACE_ATTR,
    STUDY_ATTRS,
    STUDY_SYSTEM_ATTRS,
    TRIALS,
)

#: Attribute of the new study: the source of its first trials, and their number.
COPIED_ATTR = "tuner:copied"
_LEARNT_FROM = (TrialState.COMPLETE, TrialState.PRUNED)
_BATCH = 2000


class Keep(Enum):
    """Keeps the space."""

    SPACE = "space"


NewSpace = AnySpace | None | Keep


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """Result of a copy."""

    origin: str
    study: str
    n_copied: int
    #: Why trials had no place in the new space, with their number.
    left_out: Mapping[str, int]
    #: Trials that neither completed nor were pruned: there is nothing to learn from.
    n_not_ended: int


def copy_study(origin: Place, target: Place, space: NewSpace, config: StudyConfig | None) -> Copied:
    """Creates the study that `target` names.

    Args:
        origin: The earlier study.
        target: The database, with the new name.
        space: The search space of the new study.
        config: The study file of the new study, if there is one.

    Raises:
        StoreError: If the name is in use, the objectives differ, or no trial fits.
    """
    assert target.study is not None, "the new study has a name"
    if origin.url == target.url:
        # Puts an SQLite file into WAL mode: otherwise the reader below would block our writes.
        check_file(parse_url(target.url), must_exist=True)
        open_database(target.url).close()
    with reading(origin) as (_, source):
        stored = choose_study(source, origin)
        objectives = read_objectives(source)[stored.id]
        if config is not None:
            _refuse_other_objectives(source, stored, objectives, config)
        stored_space = read_space(source, stored.id)
        if space is Keep.SPACE:
            space = stored_space
        is_changed = identity(space) != identity(stored_space)
        new_space = space if is_changed and isinstance(space, SearchSpace) else None
        chosen = _choose(source, stored.id, new_space)
        with writing(target) as (_, connection):
            without_idle_limit(connection)
            refuse_taken(connection, target, target.study, "Give --to another name.")
            changes = _changes(
                chosen, is_refitted=new_space is not None, is_described=config is not None
            )
            transfer = Transfer(source, connection, changes)
            study_id = transfer.copy(stored.id, target.study, study_tables(with_ours=False))
            if new_space is not None:
                _insert_params(connection, chosen, transfer.trial_ids, new_space)
            _describe(connection, study_id, stored, len(chosen.params), space, config)
    return Copied(
        origin=stored.name,
        study=target.study,
        n_copied=len(chosen.params),
        left_out=chosen.left_out,
        n_not_ended=chosen.n_not_ended,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    #: By trial id, in the order of their numbers.
    params: Mapping[int, Mapping[str, Scalar]]
    left_out: Mapping[str, int]
    n_not_ended: int


def _choose(source: sa.Connection, study_id: int, space: SearchSpace | None) -> _Chosen:
    """Trials that fit a space; None: all that have a result."""
    query = sa.select(TRIALS.c.trial_id, TRIALS.c.state).where(TRIALS.c.study_id == study_id)
    rows = source.execute(query.order_by(TRIALS.c.number)).all()
    ids = [row.trial_id for row in rows if row.state in _LEARNT_FROM]
    params: dict[int, Mapping[str, Scalar]] = {trial_id: {} for trial_id in ids}
    left_out: Counter[str] = Counter()
    if space is not None:
        params, left_out = _refit(read_whole_params(source, study_id, ids), ids, space)
    if not params:
        raise StoreError(f"No trial was copied, and no study was made. {_why(left_out)}")
    return _Chosen(
        params=params, left_out=dict(left_out.most_common()), n_not_ended=len(rows) - len(ids)
    )


def _refit(
    whole: Mapping[int, Mapping[str, ParamValue]], ids: Sequence[int], space: SearchSpace
) -> tuple[dict[int, Mapping[str, Scalar]], Counter[str]]:
    params: dict[int, Mapping[str, Scalar]] = {}
    left_out: Counter[str] = Counter()
    for trial_id in ids:
        try:
            params[trial_id] = refitted(whole[trial_id], space)
        except LeftOut as reason:
            left_out[str(reason)] += 1
    return params, left_out


def _why(left_out: Counter[str]) -> str:
    if not left_out:
        return "The study has no trial that has completed or was pruned."
    reasons = "\n".join(f"  {n}: {reason}" for reason, n in left_out.most_common())
    return (
        f"None fits the new space:\n{reasons}\n"
        "Widen the space, or keep what is gone as a constant, to take those trials."
    )


def _refuse_other_objectives(
    source: sa.Connection,
    stored: StoredStudy,
    objectives: Sequence[Objective],
    config: StudyConfig,
) -> None:
    """A study that the tuner did not make has directions, but no names to go by."""
    query = sa.select(STUDY_ATTRS.c.key).where(
        STUDY_ATTRS.c.study_id == stored.id, STUDY_ATTRS.c.key == OBJECTIVES_ATTR
    )
    is_named = source.execute(query).first() is not None
    old = [(each.name if is_named else "", each.direction) for each in objectives]
    given = config.objectives.items()
    new = [(name if is_named else "", to_optuna(direction)) for name, direction in given]
    if old != new:
        was = ", ".join(map(str, objectives))
        now = ", ".join(f"{name} ({direction.value})" for name, direction in given)
        raise StoreError(
            f"{config.file}: objectives are {now}, but study {stored.name!r} has {was}: the "
            "values would not compare. Use the same objectives, in the same order."
        )


def _changes(chosen: _Chosen, *, is_refitted: bool, is_described: bool) -> dict[str, Change]:
    """Changes of each table's rows.

    Args:
        chosen: The trials to copy.
        is_refitted: Whether parameters are converted.
        is_described: Whether attributes that describe the study are replaced.
    """
    numbers = {trial_id: number for number, trial_id in enumerate(chosen.params)}
    described = {OBJECTIVES_ATTR} if is_described else set()
    of_space = {RETURNED_PARAMS_ATTR} if is_refitted else set()

    def renumbered(row: Row) -> Row | None:
        number = numbers.get(row["trial_id"])
        return None if number is None else row | {"number": number}

    changes: dict[str, Change] = {
        "study_user_attributes": _without(
            {SPACE_ATTR, COPIED_ATTR, TRANSFER_ATTR, IDENTITY_ATTR, *described}
        ),
        "study_system_attributes": leave_out if is_described else _only((METRIC_NAMES_ATTR,)),
        "trials": renumbered,
        "trial_user_attributes": _without(of_space),
        # The others are a sampler's notes about a space that may be another one now.
        "trial_system_attributes": _only((CONSTRAINTS_ATTR, RUNG_KEY)),
        "trial_heartbeats": leave_out,
    }
    return changes | {"trial_params": leave_out} if is_refitted else changes


def _without(keys: Container[str]) -> Change:
    return lambda row: None if row["key"] in keys else row


def _only(prefixes: tuple[str, ...]) -> Change:
    return lambda row: row if row["key"].startswith(prefixes) else None


def _insert_params(
    connection: sa.Connection, chosen: _Chosen, new_ids: Mapping[int, int], space: SearchSpace
) -> None:
    distributions: dict[str, BaseDistribution] = {
        each.name: each.distribution for each in space.parameters
    }
    texts = {name: distribution_to_json(each) for name, each in distributions.items()}
    rows: list[dict[str, Any]] = [
        {
            "trial_id": new_ids[trial_id],
            "param_name": name,
            "param_value": distributions[name].to_internal_repr(value),
            "distribution_json": texts[name],
        }
        for trial_id, params in chosen.params.items()
        for name, value in params.items()
    ]
    for start in range(0, len(rows), _BATCH):
        connection.execute(sa.insert(PARAMS), rows[start : start + _BATCH])


def _describe(
    connection: sa.Connection,
    study_id: int,
    origin: StoredStudy,
    n_copied: int,
    space: AnySpace | None,
    config: StudyConfig | None,
) -> None:
    attributes: dict[str, object] = {COPIED_ATTR: {"study": origin.name, "trials": n_copied}}
    if space is not None or config is not None:
        attributes[SPACE_ATTR] = to_json(space)
    if config is not None:
        names = list(config.objectives)
        attributes[OBJECTIVES_ATTR] = names
        _insert_attribute(connection, STUDY_SYSTEM_ATTRS, study_id, METRIC_NAMES_ATTR, names)
    for key, value in attributes.items():
        _insert_attribute(connection, STUDY_ATTRS, study_id, key, value)


def _insert_attribute(
    connection: sa.Connection, table: sa.Table, study_id: int, key: str, value: object
) -> None:
    row = {"study_id": study_id, "key": key, "value_json": json.dumps(value)}
    connection.execute(sa.insert(table), row)
