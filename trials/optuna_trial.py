"""The `optuna.Trial` part of a trial, so that an Optuna objective runs unchanged."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, Trial

from tuner.domain.messages import MAX_KEY, Assign, StudyPlace, name_problem
from tuner.store.optuna_compat import storage_of, study_id_of
from tuner.trials.params import Params
from tuner.trials.worker.port import Link

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

#: Attributes with this prefix are the tuner's own.
_OWN_PREFIX = "tuner:"


class TrialStudy(optuna.Study):
    """The study of a running trial, as in the database.

    Everything that `optuna.Study` reads and writes works: `direction`, `user_attrs`, `trials`,
    `best_trial`, `enqueue_trial`, artifacts.

    Args:
        name: Its name in the database.
        storage: Optuna's storage of the database.
        link: Link to the dispatcher.
    """

    def __init__(self, name: str, storage: BaseStorage, link: Link) -> None:
        super().__init__(name, storage)
        self._link = link

    def stop(self) -> None:
        """Lets no more trials start; running trials finish. This one continues, too."""
        self._link.stop_study()

    def optimize(self, *_arguments: Any, **_options: Any) -> None:
        """Refuses to run trials.

        Raises:
            RuntimeError: Always; the tuner starts the trials of this study.
        """
        raise RuntimeError(
            "study.optimize() was called inside a trial of the same study. The tuner starts its "
            "trials. For a study inside of a trial, create another one: optuna.create_study()."
        )


class OptunaTrial(Trial):
    """The methods and properties of `optuna.Trial`."""

    # Optuna's own constructor would ask a sampler.
    def __init__(self, assign: Assign, link: Link) -> None:
        """Creates the trial of one attempt.

        Args:
            assign: The dispatcher's assignment.
            link: Link to the dispatcher.
        """
        self._assign = assign
        self._link = link
        self._params = dict(assign.params)
        self._distributions: dict[str, BaseDistribution] = {}
        self._user_attrs: dict[str, Any] = {}
        self._constraints: dict[str, float] = {}
        self._started_at = datetime.datetime.now()

    def __reduce__(self) -> tuple[Callable[..., OptunaTrial], tuple[object, ...]]:
        """A copy in another process of the trial connects by itself (Lightning's `ddp_spawn`)."""
        return _join, (dict(self._params), self._distributions, self._user_attrs)

    @property
    def number(self) -> int:
        """The number of the trial in its study, from 0."""
        return self._assign.trial_number

    @property
    def params(self) -> Params:
        """The parameters of the study file, and those suggested so far: a copy, as in Optuna.

        Values of the study file, which the code does not suggest, cannot be replaced.
        """
        chosen = [name for name in self._assign.params if name not in self._distributions]
        return Params(self._params, chosen=chosen)

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """The distributions of the parameters suggested so far, as in Optuna."""
        return dict(self._distributions)

    @property
    def user_attrs(self) -> dict[str, Any]:
        """Values passed to `set_user_attr`, including earlier attempts of the trial."""
        return {**self._earlier_attrs, **self._user_attrs}

    @property
    def constraints(self) -> dict[str, float]:
        """Constraints set by this attempt."""
        return dict(self._constraints)

    @property
    def datetime_start(self) -> datetime.datetime:
        """When this attempt started, in local time."""
        return self._started_at

    @property
    def relative_params(self) -> dict[str, Any]:
        """The parameters of the study file, which were chosen before the trial started."""
        return {name: self._params[name] for name in self._assign.params}

    @cached_property
    def study(self) -> optuna.Study:  # type: ignore[override]  # Optuna assigns it.
        """The study as an `optuna.Study`: `direction`, `user_attrs`, `trials`, `stop()` and more.

        The first use connects to the database. `optimize` is refused.
        """
        from tuner.store.connection.optuna_storage import open_storage  # SQLAlchemy: 0.3 s.

        place = self._place
        if not place.storage:
            raise RuntimeError(
                "trial.study: this trial has no study in a database. Run it with the tuner, or "
                "name a database: tuner.current(storage=...)."
            )
        return TrialStudy(place.study, open_storage(place.storage), self._link)

    @cached_property
    def storage(self) -> BaseStorage:  # type: ignore[override]
        """Optuna's storage of the study, for example for `optuna.artifacts.upload_artifact`."""
        return storage_of(self.study)

    @cached_property
    def _place(self) -> StudyPlace:
        return self._link.study_place()

    @cached_property
    def _trial_id(self) -> int:  # type: ignore[override]
        study_id = study_id_of(self.study)
        return self.storage.get_trial_id_from_study_id_trial_number(study_id, self.number)

    @cached_property
    def _cached_frozen_trial(self) -> FrozenTrial:  # type: ignore[override]
        return self.storage.get_trial(self._trial_id)

    @property
    def system_attrs(self) -> dict[str, Any]:
        """Optuna's own attributes of the trial.

        A restarted trial has the attributes of `RetryFailedTrialCallback`, so that programs that
        use `retry_history` continue: it is a list with this trial's own number.
        """
        stored = self.storage.get_trial_system_attrs(self._trial_id)
        if self._assign.attempt_number > 1:
            stored = {"failed_trial": self.number, "retry_history": [self.number], **stored}
        return stored

    @cached_property
    def _earlier_attrs(self) -> Mapping[str, Any]:
        if self._assign.attempt_number <= 1 or not self._place.storage:
            return {}
        stored = self.storage.get_trial_user_attrs(self._trial_id)
        return {k: v for k, v in stored.items() if not k.startswith(_OWN_PREFIX)}

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """Suggests a float. A parameter that the study file declares keeps the value from it."""
        return float(self._suggest(name, FloatDistribution(low, high, log=log, step=step)))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """Suggests an integer. A parameter that the study file declares keeps the value from it."""
        return int(self._suggest(name, IntDistribution(low, high, log=log, step=step)))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Suggests a choice. A parameter that the study file declares keeps the value from it."""
        return self._suggest(name, CategoricalDistribution(choices))

    def suggest_uniform(self, name: str, low: float, high: float) -> float:
        """`suggest_float(name, low, high)`, for objectives written for an old Optuna."""
        return self.suggest_float(name, low, high)

    def suggest_loguniform(self, name: str, low: float, high: float) -> float:
        """`suggest_float(name, low, high, log=True)`, for an old Optuna."""
        return self.suggest_float(name, low, high, log=True)

    def suggest_discrete_uniform(self, name: str, low: float, high: float, q: float) -> float:
        """`suggest_float(name, low, high, step=q)`, for an old Optuna."""
        return self.suggest_float(name, low, high, step=q)

    def set_user_attr(self, key: str, value: Any) -> None:
        """Stores a JSON value with the trial, as in Optuna.

        Args:
            key: Its name, at most 480 characters.
            value: Anything that JSON can hold, at most 16 MiB. Save larger data as a file in
                `checkpoint_dir`.

        Raises:
            ValueError: If the key or the value is too long.
        """
        check_name("set_user_attr", key, MAX_KEY)
        self._link.set_attribute(key, value)
        self._user_attrs[key] = value

    def set_constraint(self, key: str, value: float) -> None:
        """Sets a constraint, as in Optuna: a trial is feasible if all constraints are 0 or less.

        Args:
            key: Its name, at most 480 characters.
            value: By how much it is violated; 0 or less if it is not.

        Raises:
            ValueError: If the key is too long.
        """
        check_name("set_constraint", key, MAX_KEY)
        self._link.set_constraint(key, float(value))
        self._constraints[key] = float(value)

    def _suggest(self, name: str, distribution: BaseDistribution) -> Any:
        if name not in self._params:
            check_name("suggest", name, MAX_KEY)
            self._params[name] = self._link.suggest(name, distribution)
        elif name in self._assign.params and name not in self._distributions:
            self._link.range_in_code(name, distribution)
        self._distributions[name] = distribution
        return self._params[name]


def add_params(trial: OptunaTrial, values: Mapping[str, Any]) -> None:
    """Adds parameters that the study file's function returned without suggesting them."""
    trial._params |= values


def check_name(function: str, name: str, limit: int) -> None:
    """Checks a name.

    Raises:
        ValueError: If the name cannot be stored.
    """
    if problem := name_problem(name, limit):
        raise ValueError(f"{function}: {problem}. Take a shorter, plain one.")


def _join(
    params: Mapping[str, Any],
    distributions: Mapping[str, BaseDistribution],
    user_attrs: Mapping[str, Any],
) -> OptunaTrial:
    """The trial of this process, with the data of its copied object."""
    from tuner.trials.current_trial import current

    trial = current()
    trial._params.update(params)
    trial._distributions.update(distributions)
    trial._user_attrs.update(user_attrs)
    return trial
