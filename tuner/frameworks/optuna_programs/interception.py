"""Replaces a program's `study.optimize` with a recorder of its arguments."""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial, TrialState

#: Key under which Optuna stores the results of a `constraints_func`.
CONSTRAINTS_KEY = "constraints"


class Reached(BaseException):
    """Ends a program at its first `study.optimize`. No `except Exception` stops it."""


@dataclass(frozen=True, kw_only=True)
class OptimizeCall:
    """A call of `study.optimize`."""

    study: optuna.Study
    #: Arguments by name, with their defaults.
    arguments: Mapping[str, Any]

    @property
    def objective(self) -> Callable[[optuna.Trial], Any]:
        """The function of a trial."""
        function: Callable[[optuna.Trial], Any] = self.arguments["func"]
        return function


@dataclass(frozen=True, kw_only=True)
class CreateCall:
    """A call of `optuna.create_study` or `load_study`."""

    #: Arguments by name, with their defaults.
    arguments: Mapping[str, Any]
    #: Number of studies that the program had created before.
    place: int


class AskedAndTold(Exception):
    """The program uses the ask-and-tell interface."""


class Interception:
    """Replaces functions of Optuna while a program runs. Studies that it creates are in memory."""

    def __init__(self) -> None:
        self.call: OptimizeCall | None = None
        #: Whether the program uses `study.ask`.
        self.has_asked = False
        self._created: list[tuple[optuna.Study, CreateCall]] = []
        self._made: list[tuple[object, Mapping[str, Any]]] = []

    def created(self, study: optuna.Study) -> CreateCall | None:
        """How a study was created; None if it was created in another way."""
        return next((call for each, call in self._created if each is study), None)

    def arguments_of(self, made: object) -> Mapping[str, Any] | None:
        """The arguments of the constructor of a sampler, a pruner or a storage."""
        return next((found for each, found in self._made if each is made), None)

    def reached(self, call: OptimizeCall) -> None:
        """Called at the first `study.optimize`, before the program ends there."""

    @contextmanager
    def active(self) -> Iterator[None]:
        """Replaces the functions of Optuna inside of the block."""
        with replaced(list(self._replacements())):
            yield

    def _replacements(self) -> Iterator[tuple[object, str, object]]:
        modules = (optuna, optuna.study, optuna.study.study)
        for name in ("create_study", "load_study"):
            original = getattr(optuna, name)
            yield from ((module, name, self._creating(original)) for module in modules)
        yield optuna.Study, "optimize", self._optimize
        yield optuna.Study, "ask", self._ask
        noted: list[type[Any]] = [*_classes(optuna.samplers), *_classes(optuna.pruners)]
        noted.append(RDBStorage)
        for cls in noted:
            yield cls, "__init__", self._noting(cls)

    @property
    def _optimize(self) -> Callable[..., None]:
        signature = inspect.signature(optuna.Study.optimize)

        def optimize(study: optuna.Study, *arguments: Any, **options: Any) -> None:
            bound = signature.bind(study, *arguments, **options)
            bound.apply_defaults()
            if self.call is None:
                given = {k: v for k, v in bound.arguments.items() if k != "self"}
                self.call = OptimizeCall(study=study, arguments=given)
                self.reached(self.call)
            raise Reached

        return optimize

    def _ask(self, *_arguments: Any, **_options: Any) -> None:
        self.has_asked = True
        raise AskedAndTold("study.ask() was called before study.optimize().")

    def _creating(self, original: Callable[..., optuna.Study]) -> Callable[..., optuna.Study]:
        signature = inspect.signature(original)

        def create(*arguments: Any, **options: Any) -> optuna.Study:
            bound = signature.bind(*arguments, **options)
            bound.apply_defaults()
            study = self._study(original, bound.arguments)
            call = CreateCall(arguments=dict(bound.arguments), place=len(self._created))
            self._created.append((study, call))
            return study

        return create

    def _study(
        self, original: Callable[..., optuna.Study], given: Mapping[str, Any]
    ) -> optuna.Study:
        if "direction" not in given:
            return original(**given)  # A stored one, whose directions count.
        kept = {key: given[key] for key in ("direction", "directions", "sampler", "pruner")}
        verbosity = optuna.logging.get_verbosity()
        # That the study is in memory would mislead.
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            return original(**kept, study_name=given["study_name"])
        finally:
            optuna.logging.set_verbosity(verbosity)

    def _noting(self, cls: type[Any]) -> Callable[..., None]:
        original = cls.__init__
        signature = inspect.signature(original)

        def __init__(made: object, *arguments: Any, **options: Any) -> None:
            if self.arguments_of(made) is None:
                bound = signature.bind(made, *arguments, **options)
                given = dict(list(bound.arguments.items())[1:])
                given |= given.pop("kwargs", {})
                self._made.append((made, given))
            original(made, *arguments, **options)

        return __init__


class FinishedStudy(optuna.Study):
    """The finished study, for the rest of the program: `optimize` does nothing.

    Args:
        name: Name of the study.
        storage: Storage of its database.
    """

    def __init__(self, name: str, storage: BaseStorage) -> None:
        super().__init__(name, storage)
        self._is_before = True

    def optimize(self, *_arguments: Any, **_options: Any) -> None:
        """Does nothing. A second call ends the program."""
        if not self._is_before:
            raise Reached
        self._is_before = False

    def get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """The trials; results of a `constraints_func` are under Optuna's key."""
        trials = super().get_trials(deepcopy=deepcopy, states=states)
        for trial in trials:
            if values := list(_results_of_constraints_func(trial)):
                names = {f"{CONSTRAINTS_KEY}:{place}" for place in range(len(values))}
                others = {k: v for k, v in trial.system_attrs.items() if k not in names}
                trial.system_attrs = {**others, CONSTRAINTS_KEY: values}
        return trials

    def enqueue_trial(self, *arguments: Any, **options: Any) -> None:
        """Does nothing before `optimize`: the tuner has enqueued these trials."""
        if not self._is_before:
            super().enqueue_trial(*arguments, **options)

    def add_trial(self, trial: FrozenTrial) -> None:
        """Like `enqueue_trial`."""
        if not self._is_before:
            super().add_trial(trial)


def _results_of_constraints_func(trial: FrozenTrial) -> Iterator[float]:
    """Values set one by one by the objective's process, in the order of the function's results."""
    for place in itertools.count():
        key = f"{CONSTRAINTS_KEY}:{place}"
        if key not in trial.system_attrs:
            return
        yield trial.system_attrs[key]


@contextmanager
def finishing(study: FinishedStudy, place: int) -> Iterator[None]:
    """Replaces one of the studies that the program creates by the finished study.

    The first `optimize` of any other study ends the program.

    Args:
        study: The study.
        place: Number of studies that the program creates before it.
    """
    n_created = 0

    def creating(original: Callable[..., optuna.Study]) -> Callable[..., optuna.Study]:
        def create(*arguments: Any, **options: Any) -> optuna.Study:
            nonlocal n_created
            n_created += 1
            return study if n_created == place + 1 else original(*arguments, **options)

        return create

    def optimize(*_arguments: Any, **_options: Any) -> None:
        raise Reached

    modules = (optuna, optuna.study, optuna.study.study)
    names = ("create_study", "load_study")
    made = [(m, name, creating(getattr(optuna, name))) for m in modules for name in names]
    with replaced([*made, (optuna.Study, "optimize", optimize)]):
        yield


@contextmanager
def replaced(replacements: list[tuple[Any, str, object]]) -> Iterator[None]:
    """Replaces attributes inside of the block."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replacements]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        try:
            for owner, name, value in replacements:
                setattr(owner, name, value)
            yield
        finally:
            for owner, name, value in before:
                setattr(owner, name, value)


def _classes(module: Any) -> Iterator[type[Any]]:
    exported = (getattr(module, name) for name in module.__all__)
    return (each for each in exported if inspect.isclass(each) and "__init__" in vars(each))
