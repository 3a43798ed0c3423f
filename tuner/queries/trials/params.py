"""Configurations of many trials at once, as their programs got them."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa
from optuna.distributions import BaseDistribution, json_to_distribution

from tuner.domain.messages import RETURNED_PARAMS_ATTR
from tuner.search.pruners.hyperband import FIRST_RUNG_KEY
from tuner.search.samplers.grid_points import POINT_ATTR
from tuner.search_spaces import AnySpace, ParamValue, SearchSpace, from_json
from tuner.store.optuna_tables.statements import (
    FIXED_PARAMS_ATTR,
    PARAMS,
    SPACE_ATTR,
    STUDY_ATTRS,
    SYSTEM_ATTRS,
    USER_ATTRS,
    ids_of,
    of_trials,
)

Configuration = Mapping[str, ParamValue]


def read_space(connection: sa.Connection, study_id: int) -> AnySpace | None:
    """The space of a study; None if it has none, or was not made by the tuner."""
    query = sa.select(STUDY_ATTRS.c.value_json).where(
        STUDY_ATTRS.c.study_id == study_id, STUDY_ATTRS.c.key == SPACE_ATTR
    )
    stored = connection.execute(query).scalar()
    return from_json(json.loads(stored)) if stored else None


def read_params(
    connection: sa.Connection, study_id: int, trial_ids: Collection[int] | None = None
) -> dict[int, dict[str, ParamValue]]:
    """Suggested values by trial id, in the order in which they were suggested."""
    found: dict[int, dict[str, ParamValue]] = {}
    columns = PARAMS.c
    query = (
        of_trials(PARAMS, study_id, trial_ids)
        .with_only_columns(
            columns.trial_id, columns.param_name, columns.param_value, columns.distribution_json
        )
        .order_by(columns.param_id)
    )
    for trial_id, name, value, distribution in connection.execute(query):
        found.setdefault(trial_id, {})[name] = distribution_of(distribution).to_external_repr(value)
    return found


def read_distributions(connection: sa.Connection, study_id: int) -> dict[str, BaseDistribution]:
    """The latest distribution of each parameter of the study's trials."""
    newest = (
        sa.select(sa.func.max(PARAMS.c.param_id))
        .where(PARAMS.c.trial_id.in_(ids_of(study_id)))
        .group_by(PARAMS.c.param_name)
    )
    query = sa.select(PARAMS.c.param_name, PARAMS.c.distribution_json).where(
        PARAMS.c.param_id.in_(newest)
    )
    rows = connection.execute(query)
    return {row.param_name: distribution_of(row.distribution_json) for row in rows}


def read_whole_params(
    connection: sa.Connection, study_id: int, trial_ids: Collection[int] | None = None
) -> dict[int, dict[str, ParamValue]]:
    """Suggested, constant, and returned by a define-by-run space."""
    space = read_space(connection, study_id)
    constants = dict(space.constants) if isinstance(space, SearchSpace) else {}
    params = read_params(connection, study_id, trial_ids)
    returned = _attributes(connection, USER_ATTRS, study_id, trial_ids, key=RETURNED_PARAMS_ATTR)
    return {
        trial_id: params.get(trial_id, {}) | constants | returned.get(trial_id, {})
        for trial_id in {*params, *returned, *(trial_ids or ())}
    }


def read_fixed(
    connection: sa.Connection, study_id: int, trial_ids: Collection[int] | None = None
) -> dict[int, dict[str, ParamValue]]:
    """The fixed parameters of enqueued trials."""
    return _attributes(connection, SYSTEM_ATTRS, study_id, trial_ids, key=FIXED_PARAMS_ATTR)


def read_points(connection: sa.Connection, study_id: int) -> dict[int, dict[str, Any]]:
    """The points of a grid that trials try, by trial id."""
    return _attributes(connection, SYSTEM_ATTRS, study_id, None, key=POINT_ATTR)


def read_first_rung(connection: sa.Connection, study_id: int, trial_id: int) -> int | None:
    """First step of a trial's bracket, 0 for no rung; None for a trial in no bracket."""
    found: Mapping[int, Any] = _attributes(
        connection, SYSTEM_ATTRS, study_id, [trial_id], key=FIRST_RUNG_KEY
    )
    first: int | None = found.get(trial_id)
    return first


@functools.lru_cache(maxsize=1024)
def distribution_of(text: str) -> BaseDistribution:
    """A study has a few distributions, and a row of text for each parameter of each trial."""
    return json_to_distribution(text)


def _attributes(
    connection: sa.Connection,
    table: sa.Table,
    study_id: int,
    trial_ids: Collection[int] | None,
    *,
    key: str,
) -> dict[int, dict[str, Any]]:
    query = of_trials(table, study_id, trial_ids).where(table.c.key == key)
    return {row.trial_id: json.loads(row.value_json) for row in connection.execute(query)}
