"""The steps at which a study's pruner compares trials, from the study file it was last run with."""

from __future__ import annotations

import sqlalchemy as sa
from optuna.pruners import BasePruner, HyperbandPruner, PatientPruner, SuccessiveHalvingPruner
from pydantic import ValidationError

from tuner.config import PrunerConfig
from tuner.config.sections.search import AUTO
from tuner.errors import ConfigError
from tuner.queries.dispatchers import has_our_tables
from tuner.search.defaults import picked_pruner
from tuner.search.pruners.freeze_thaw import FreezeThawPruner
from tuner.search.pruners.hyperband import AsyncHyperbandPruner
from tuner.search.pruners.registry import build_pruner
from tuner.search_spaces.strict_yaml import YamlError, read_yaml
from tuner.store.optuna_compat import halving_settings, wrapped_by
from tuner.store.schema.models import DispatcherRow

_MAX_RUNGS = 20


def read_rungs(connection: sa.Connection, study_id: int, last_step: int) -> list[int]:
    """Rungs up to a step; empty if the pruner has none, or derives them from its trials."""
    return rungs_until(read_pruner(connection, study_id), last_step)


def read_pruner(connection: sa.Connection, study_id: int) -> BasePruner | None:
    """A study's pruner; None if unknown."""
    if not has_our_tables(connection):
        return None
    query = (
        sa.select(DispatcherRow.study_file)
        .where(DispatcherRow.study_id == study_id)
        .order_by(DispatcherRow.id.desc())
        .limit(1)
    )
    text = connection.execute(query).scalar()
    return None if text is None else pruner_in(text)


def pruner_in(study_file: str) -> BasePruner | None:
    """The pruner in a study file's text, or the default for it."""
    try:
        document = read_yaml(study_file)
        if not isinstance(document, dict):
            return None
        config = PrunerConfig.model_validate(document.get("pruner") or AUTO)
        if config.name == AUTO:
            objectives = document.get("objectives")
            config, _ = picked_pruner(len(objectives) if isinstance(objectives, dict) else 1)
        return build_pruner(config, 1)
    except (YamlError, ValidationError, ConfigError):
        return None  # A file that only its flags have put right.


def rungs_until(pruner: BasePruner | None, last_step: int) -> list[int]:
    """The steps up to the last one at which a pruner compares trials."""
    if pruner is None:
        return []
    return [rung for rung in _all_rungs(pruner) if rung <= last_step]


def _all_rungs(pruner: BasePruner) -> list[int]:
    if isinstance(pruner, PatientPruner):
        pruner = wrapped_by(pruner) or pruner
    first: int | None = None
    factor, skipped = 1, 0
    if isinstance(pruner, AsyncHyperbandPruner | FreezeThawPruner):
        first, factor = pruner.min_resource, pruner.reduction_factor
    elif isinstance(pruner, SuccessiveHalvingPruner | HyperbandPruner):
        settings = halving_settings(pruner)
        first, factor = settings.min_resource, settings.reduction_factor
        skipped = settings.n_skipped_rungs
    if first is None:
        return []
    return [first * factor ** (skipped + rung) for rung in range(_MAX_RUNGS)]
