"""Samplers that follow one sequence over later starts and parallel dispatchers.

They get the study's own seed at every start; other samplers get a new one.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import optuna
import sqlalchemy as sa
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from tuner.search.samplers.grid_points import FIXED_ATTR, POINT_ATTR, GridPoints, Point
from tuner.store.optuna_compat import GridValueType, can_hold, storage_of, study_id_of, trial_id_of
from tuner.store.optuna_tables.statements import SYSTEM_ATTRS, TRIALS
from tuner.store.optuna_tables.storage import BufferedStorage

_POINTS_AFTER = (
    sa.select(SYSTEM_ATTRS.c.trial_id, SYSTEM_ATTRS.c.key, SYSTEM_ATTRS.c.value_json)
    .join(TRIALS, TRIALS.c.trial_id == SYSTEM_ATTRS.c.trial_id)
    .where(
        TRIALS.c.study_id == sa.bindparam("b_study_id"),
        TRIALS.c.trial_id > sa.bindparam("b_trial_id"),
        SYSTEM_ATTRS.c.key.in_([POINT_ATTR, FIXED_ATTR]),
    )
)


class GridSampler(optuna.samplers.GridSampler):
    """Optuna's grid sampler, but each point is tried once, identified by its values.

    A point counts as tried once any trial has its values: running, waiting, enqueued, or ended in
    any way, including failed. Optuna instead counts positions in a shuffled list, gives trial n
    position n, and repeats points that run elsewhere.

    Args:
        search_space: The values of each parameter.
        seed: Seed of the order.
    """

    def __init__(
        self, search_space: Mapping[str, Sequence[GridValueType]], seed: int | None = None
    ) -> None:
        super().__init__(search_space, seed)
        self._points = GridPoints(self._param_names, self._all_grids)
        self._ids = {repr(values): place for place, values in enumerate(self._all_grids)}
        self._n_seen = 0
        self._without_point: dict[int, FrozenTrial] = {}
        #: Trials up to this id were read from the database.
        self._last_id = 0

    @property
    def n_points(self) -> int:
        """Number of points of the grid."""
        return len(self._points)

    def has_point_left(self, study: optuna.Study) -> bool:
        """Whether there is a point that no trial has, as far as the study is known here."""
        self._look(study)
        return self._points.next() is not None

    def begin(self, study: optuna.Study, storage: BufferedStorage) -> int | None:
        """Starts a trial at the next point, exclusively for this dispatcher.

        Returns:
            The trial's id; None if all points are tried.

        Raises:
            NoTrialLeft: If the study may have no further trial.
        """
        self._look(study)
        choose = partial(self._choose, study_id=study_id_of(study))
        trial_id = storage.begin_chosen(study_id_of(study), choose)
        if trial_id is not None:
            self._points.note(storage.get_trial(trial_id).system_attrs[POINT_ATTR])
        return trial_id

    # -- as Optuna calls it ------------------------------------------------------------------

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        attributes, storage = trial.system_attrs, storage_of(study)
        if POINT_ATTR in attributes or self._note(trial):
            return
        self._look(study, but=trial)
        fixed: Point = {**trial.params, **attributes.get(FIXED_ATTR, {})}
        point = self._points.completed(fixed)
        for key, value in self._attributes(point).items():
            storage.set_trial_system_attr(trial_id_of(trial), key, value)
        self._points.note(point)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        point = trial.system_attrs.get(POINT_ATTR, {})
        if param_name not in point:
            raise ValueError(f"The parameter {param_name!r} is not in the given grid.")
        value = point[param_name]
        if not can_hold(param_distribution, value):
            warnings.warn(
                f"The value {value!r} of the grid is out of the range of {param_name!r}, which is "
                f"{param_distribution}. It is used nevertheless.",
                stacklevel=2,
            )
        return value

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        if self.has_point_left(study):
            return
        unfinished = (TrialState.RUNNING, TrialState.WAITING)
        others = storage_of(study).get_all_trials(
            study_id_of(study), deepcopy=False, states=unfinished
        )
        if all(trial_id_of(other) == trial_id_of(trial) for other in others):
            study.stop()

    def is_exhausted(self, study: optuna.Study) -> bool:
        return not self.has_point_left(study)

    # -- inside ------------------------------------------------------------------------------

    def _look(self, study: optuna.Study, but: FrozenTrial | None = None) -> None:
        """Reads new trials, and those that had no point at the last call."""
        trials = storage_of(study).get_all_trials(study_id_of(study), deepcopy=False)
        for trial in trials[self._n_seen :]:
            self._without_point[trial.number] = trial
        self._n_seen = len(trials)
        for number in list(self._without_point):
            trial = trials[number]
            is_own = but is not None and number == but.number
            if not is_own and (self._note(trial) or trial.state.is_finished()):
                del self._without_point[number]

    def _note(self, trial: FrozenTrial) -> bool:
        attributes = trial.system_attrs
        return self._points.note(
            attributes.get(POINT_ATTR, {}), trial.params, attributes.get(FIXED_ATTR, {})
        )

    def _choose(self, connection: sa.Connection, *, study_id: int) -> Mapping[str, Any] | None:
        """Chooses a point in the transaction that adds the trial, where all trials are seen."""
        rows = connection.execute(
            _POINTS_AFTER, {"b_study_id": study_id, "b_trial_id": self._last_id}
        ).all()
        for row in rows:
            self._points.note(json.loads(row.value_json))
        self._last_id = max([self._last_id, *(row.trial_id for row in rows)])
        point = self._points.next()
        return None if point is None else self._attributes(point)

    def _attributes(self, point: Point) -> dict[str, Any]:
        """With Optuna's own, for its tools; a point off the grid has no place there."""
        attributes: dict[str, Any] = {POINT_ATTR: dict(point)}
        place = self._ids.get(repr(tuple(point[name] for name in self._param_names)))
        if place is not None:
            attributes |= {"search_space": self._search_space, "grid_id": place}
        return attributes


class QMCSampler(optuna.samplers.QMCSampler):
    """Optuna's quasi-random sequence, with each point used once.

    Optuna reads and writes the position in the sequence in two steps, so that several dispatchers
    get the same point.
    """

    def _find_sample_id(
        self, study: optuna.Study, search_space: dict[str, BaseDistribution]
    ) -> int:
        storage = storage_of(study)
        if isinstance(storage, BufferedStorage):
            return storage.count_up(study_id_of(study), self._key(search_space))
        return super()._find_sample_id(study, search_space)

    def _key(self, search_space: Mapping[str, BaseDistribution]) -> str:
        """The study's attribute for the place, named as in Optuna."""
        space = {name: str(each) for name, each in sorted(search_space.items())}
        names: dict[str, Any] = {"qmc_type": self._qmc_type, "search_space": space}
        names["scramble"] = self._scramble
        if self._scramble:
            names["seed"] = self._seed
        return "qmc:" + hashlib.sha256(json.dumps(names).encode()).hexdigest()
