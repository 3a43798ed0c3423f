"""The identity of a study in the database: created on first use, and checked later."""

from __future__ import annotations

import json
import secrets
import warnings
from collections.abc import Iterable

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.checkpoints.trial_folders import StudyKey, is_study_id
from tuner.config import Direction
from tuner.domain.messages import RETURNED_PARAMS_ATTR
from tuner.errors import StudyMismatch
from tuner.search.samplers.grid_points import FIXED_ATTR
from tuner.search_spaces import AnySpace, ParamValue, SearchSpace, differences, from_json, to_json
from tuner.store.optuna_tables.statements import IDENTITY_ATTR, OBJECTIVES_ATTR, SPACE_ATTR
from tuner.store.optuna_tables.storage import BufferedStorage

_ID_BYTES = 16

_DIRECTIONS = {
    Direction.MINIMIZE: StudyDirection.MINIMIZE,
    Direction.MAXIMIZE: StudyDirection.MAXIMIZE,
}


def to_optuna(direction: Direction) -> StudyDirection:
    return _DIRECTIONS[direction]


def open_study(
    storage: BufferedStorage,
    name: str,
    directions: list[StudyDirection],
    objectives: tuple[str, ...],
    space: AnySpace | None,
) -> int:
    try:
        study_id = storage.get_study_id_from_name(name)
    except KeyError:
        study_id = storage.create_new_study(directions, name)
        _describe(storage, study_id, objectives, space)
        _identify(storage, study_id)
        return study_id
    _check_same(storage, study_id, name, directions, objectives, space)
    if key_of(storage.get_study_user_attrs(study_id).get(IDENTITY_ATTR)) is None:
        _identify(storage, study_id)
    return study_id


def _identify(storage: BufferedStorage, study_id: int) -> None:
    # The trials of a study that an older version made may have files without an identity.
    identity = {
        "id": secrets.token_hex(_ID_BYTES),
        "adopts_below": storage.get_n_trials(study_id),
    }
    storage.set_study_user_attr(study_id, IDENTITY_ATTR, identity)


def key_of(identity: object) -> StudyKey | None:
    """The identity of a study's files, from its attribute; None if it has none yet."""
    if not isinstance(identity, dict) or not is_study_id(identity.get("id")):
        return None
    return StudyKey(id=identity["id"], adopts_below=int(identity.get("adopts_below", 0)))


def _describe(
    storage: BufferedStorage, study_id: int, objectives: tuple[str, ...], space: AnySpace | None
) -> None:
    storage.set_study_user_attr(study_id, SPACE_ATTR, to_json(space))
    storage.set_study_user_attr(study_id, OBJECTIVES_ATTR, list(objectives))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        study = optuna.Study(storage.get_study_name_from_id(study_id), storage)
        study.set_metric_names(list(objectives))


def _check_same(
    storage: BufferedStorage,
    study_id: int,
    name: str,
    directions: list[StudyDirection],
    objectives: tuple[str, ...],
    space: AnySpace | None,
) -> None:
    stored = storage.get_study_user_attrs(study_id)
    changes = []
    old_directions = [d.name.lower() for d in storage.get_study_directions(study_id)]
    new_directions = [d.name.lower() for d in directions]
    old_names = stored.get(OBJECTIVES_ATTR, list(objectives))
    if (old_names, old_directions) != (list(objectives), new_directions):
        old = ", ".join(map(": ".join, zip(old_names, old_directions, strict=False)))
        new = ", ".join(map(": ".join, zip(objectives, new_directions, strict=False)))
        changes.append(f"objectives were {{{old}}}, are now {{{new}}}")
    if SPACE_ATTR in stored:
        changes += differences(from_json(stored[SPACE_ATTR]), space)
    elif SPACE_ATTR not in stored and OBJECTIVES_ATTR not in stored:
        _describe(storage, study_id, objectives, space)
    if changes:
        listed = "\n".join(f"  - {change}" for change in changes)
        raise StudyMismatch(
            f"Study {name!r} exists in this storage, and it is another one:\n{listed}\n"
            "Undo the change to continue that study, or start a new one with --study NEW_NAME."
        )


def load_space_of(storage: BufferedStorage, study_id: int) -> AnySpace | None:
    """The space of a stored study; None if it has none, or was not made by the tuner."""
    text = storage.get_study_user_attrs(study_id).get(SPACE_ATTR, json.dumps(None))
    return from_json(text)


def all_params(trial: FrozenTrial, space: AnySpace | None) -> dict[str, ParamValue]:
    """All parameters of a trial: suggested, constant, returned by a define-by-run space."""
    constants = dict(space.constants) if isinstance(space, SearchSpace) else {}
    returned: dict[str, ParamValue] = trial.user_attrs.get(RETURNED_PARAMS_ATTR, {})
    return dict(trial.params) | constants | returned


def known_params(trial: FrozenTrial, space: AnySpace | None) -> dict[str, ParamValue]:
    """All parameters of a trial, including an enqueued trial's that it has not requested yet."""
    fixed: dict[str, ParamValue] = trial.system_attrs.get(FIXED_ATTR, {})
    return fixed | all_params(trial, space)


def write_trials(trials: Iterable[FrozenTrial], storage: BufferedStorage, study_id: int) -> None:
    """Writes trials to a study in another database; running trials become waiting.

    Args:
        trials: The trials; running ones are changed.
        storage: Storage of the other database.
        study_id: Id of the study there.

    Raises:
        StoreError: If the database cannot be written.
    """
    for trial in trials:
        if trial.state is TrialState.RUNNING:
            trial.state = TrialState.WAITING
        storage.create_new_trial(study_id, template_trial=trial)
    storage.flush()
