"""From the objects of a program to the words of a study file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from optuna.pruners import BasePruner, HyperbandPruner
from optuna.samplers import BaseSampler, nsgaii
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.study import MaxTrialsCallback
from optuna.trial import TrialState

from tuner.frameworks.optuna_programs.execution import Loaded
from tuner.search.by_name import Catalogue, catalogue
from tuner.search.pruners.registry import PRUNERS
from tuner.search.samplers.registry import SAMPLERS

_CONSTRAINTS = "constraints_func"
_CROSSOVERS: Catalogue[nsgaii.BaseCrossover] = catalogue(nsgaii, nsgaii.BaseCrossover)
#: Callbacks of optuna_integration that write runs, with the equivalent keys of a study file.
_TRACKERS = {
    "MLflowCallback": "track.mlflow=URI",
    "TensorBoardCallback": "track.tensorboard=FOLDER",
    "WeightsAndBiasesCallback": "track.wandb=PROJECT",
}
#: Retries of a trial if the program allows any number.
_RETRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """A study as defined by a program."""

    #: Name of the study.
    study: str
    #: Keys of a study file, without `trial.function`.
    values: Mapping[str, Any]
    #: Settings that are used, in words.
    used: Sequence[str]
    #: Settings that are not used, each with the reason and an alternative.
    not_used: Sequence[str]
    #: Configurations to be tried first.
    enqueued: Sequence[Mapping[str, Any]]
    user_attrs: Mapping[str, Any]
    #: URL of the program's database; empty for none.
    storage: str = field(repr=False)
    #: Number of studies that the program creates before this one; -1 if it does not create it.
    place: int

    def to_text(self) -> str:
        """For a pipe."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Translation:
        """The inverse of `to_text`."""
        return cls(**json.loads(text))


def translate(loaded: Loaded) -> Translation:
    """Reads a program's settings."""
    return _Translator(loaded).result()


class _Translator:
    def __init__(self, loaded: Loaded) -> None:
        self._path = loaded.program.path
        self._interception = loaded.interception
        self._call = loaded.call.arguments
        self._devices_of_ranks = loaded.devices_of_ranks
        self._study = loaded.call.study
        created = self._interception.created(self._study)
        self._created: Mapping[str, Any] = created.arguments if created else {}
        self._place = created.place if created else -1
        self._values: dict[str, Any] = {}
        self._trial: dict[str, Any] = {}
        self._used: list[str] = []
        self._not_used: list[str] = []

    def result(self) -> Translation:
        self._read_objectives()
        self._read_search("sampler", SAMPLERS.classes, {"RandomSampler": "random"})
        self._read_search("pruner", PRUNERS.classes, {"NopPruner": "none"})
        storage = self._read_storage()
        self._read_budget()
        self._read_ranks()
        self._read_others()
        enqueued = self._read_trials()
        if self._trial:
            self._values["trial"] = self._trial
        return Translation(
            study=self._created.get("study_name") or self._path.stem,
            values=self._values,
            used=self._used,
            not_used=self._not_used,
            enqueued=enqueued,
            user_attrs=self._plain_attrs(),
            storage=storage,
            place=self._place,
        )

    def _read_objectives(self) -> None:
        directions = [each.name.lower() for each in self._study.directions]
        names = self._study.metric_names or [
            f"value_{place}" if place else "value" for place in range(len(directions))
        ]
        self._values["objectives"] = dict(zip(names, directions, strict=True))
        self._used.append(", ".join(f"{n}: {d}" for n, d in self._values["objectives"].items()))

    def _read_search(
        self, key: str, classes: Mapping[str, type[Any]], names: Mapping[str, str]
    ) -> None:
        made = getattr(self._study, key)
        if self._created.get(key) is None:
            return  # Optuna's default; the tuner chooses.
        found = self._named(made, key, classes, names)
        if found is not None:
            self._values[key] = found
            self._used.append(_call_text(type(made).__name__, found))

    def _named(
        self, made: Any, key: str, classes: Mapping[str, type[Any]], names: Mapping[str, str]
    ) -> dict[str, Any] | None:
        """A sampler or a pruner as a study file has it; None if it can't be named."""
        cls = type(made)
        by_class = {each.__name__: name for name, each in classes.items()}
        if isinstance(made, HyperbandPruner):
            by_class["HyperbandPruner"] = "optuna_hyperband"
        name = names.get(cls.__name__) or by_class.get(cls.__name__)
        arguments = self._interception.arguments_of(made)
        if arguments is None and "__init__" not in vars(cls):
            arguments = {}
        if name is None or arguments is None or not cls.__module__.startswith("optuna."):
            self._not_used.append(
                f"{key} {cls.__name__}: a class of your own. The tuner chooses a {key}; register "
                f"the class (entry point tuner.{'samplers' if key == 'sampler' else 'schedulers'})"
            )
            return None
        return {"name": name, **dict(self._arguments(arguments, key))}

    def _arguments(self, arguments: Mapping[str, Any], key: str) -> Iterator[tuple[str, Any]]:
        for name, value in arguments.items():
            if name == _CONSTRAINTS and value is not None:
                self._used.append("constraints_func, which is called at the end of each trial")
            elif isinstance(value, BaseSampler):
                yield name, self._named(value, key, SAMPLERS.classes, {})
            elif isinstance(value, BasePruner):
                yield name, self._named(value, key, PRUNERS.classes, {"NopPruner": "none"})
            elif type(value) in _CROSSOVERS.classes.values():
                crossovers = {each: known for known, each in _CROSSOVERS.classes.items()}
                yield name, crossovers[type(value)]
            elif value is not None and _is_plain(value):
                yield name, _as_plain(value)
            elif value is not None:
                self._not_used.append(
                    f"{key} argument {name}: Python code, which a study file cannot hold; the "
                    "default is used"
                )

    def _read_storage(self) -> str:
        given = self._created.get("storage")
        if given is None:
            return ""
        if isinstance(given, str):
            return given
        arguments = self._interception.arguments_of(given) or {}
        if isinstance(given, RDBStorage):
            self._read_retries(arguments)
            return str(arguments.get("url", given.url))
        name = type(given).__name__
        self._not_used.append(
            f"storage {name}: the tuner stores studies in SQLite, PostgreSQL or MySQL; write "
            "storage='sqlite:///study.db'"
        )
        return ""

    def _read_retries(self, arguments: Mapping[str, Any]) -> None:
        names = ("heartbeat_stale_trial_callback", "failed_trial_callback")
        callback = next((arguments[each] for each in names if arguments.get(each)), None)
        if isinstance(callback, RetryHeartbeatStaleTrialCallback):
            limit = vars(callback).get("_max_retry")
            self._trial["retries"] = _RETRIES if limit is None else limit
            self._used.append(
                f"{type(callback).__name__} (trial.retries: {self._trial['retries']})"
            )
        elif callback is not None:
            self._not_used.append(
                "failed_trial_callback: lost trials are restarted by the tuner; set trial.retries"
            )

    def _read_budget(self) -> None:
        n_trials, timeout_s = self._call.get("n_trials"), self._call.get("timeout")
        budget: dict[str, Any] = {}
        for callback in self._call.get("callbacks") or ():
            limit = _trial_limit(callback)
            if limit is None:
                self._not_used.append(_unused_callback(_name(callback)))
                continue
            n_trials = limit if n_trials is None else min(limit, n_trials)
            self._used.append(f"MaxTrialsCallback({limit})")
        if n_trials is not None:
            budget["trials"] = n_trials
            self._used.append(f"n_trials={n_trials} (all starts together)")
        if timeout_s is not None:
            budget["time"] = f"{float(timeout_s):g}s"
            self._used.append(f"timeout={timeout_s}")
        if budget:
            self._values["budget"] = budget

    def _read_ranks(self) -> None:
        if self._devices_of_ranks is None:
            return
        ((key, n_ranks),) = self._devices_of_ranks.items()
        if n_ranks > 1:
            self._trial |= {"parallel": "ddp", "resources": {key: n_ranks}}
        ranks = f"{n_ranks} rank{'s' if n_ranks > 1 else ''} per trial (trial.resources.{key})"
        self._used.append(f"TorchDistributedTrial, {ranks}")

    def _read_others(self) -> None:
        n_jobs = self._call.get("n_jobs", 1)
        if n_jobs != 1:
            slots = f"--set devices=cpu:{n_jobs}" if n_jobs > 0 else "--set devices=cpu:N"
            self._not_used.append(
                f"n_jobs={n_jobs}: one trial runs on each device. For CPU slots: {slots}"
            )
        if self._call.get("catch"):
            self._not_used.append("catch: the study always continues after a failed trial")
        if self._created.get("load_if_exists") is False and self._created.get("storage"):
            self._not_used.append(
                "load_if_exists=False: the same command continues the study; for a new one: "
                "--study NEW_NAME"
            )

    def _read_trials(self) -> list[dict[str, Any]]:
        trials = self._study.get_trials(deepcopy=False) if self._place >= 0 else []
        waiting = [each for each in trials if each.state is TrialState.WAITING]
        if "direction" not in self._created:
            waiting = []  # Those of a stored study wait there.
        elif n_added := len(trials) - len(waiting):
            self._not_used.append(
                f"{n_added} added trial{'s' if n_added > 1 else ''} (study.add_trial): import "
                "them into the database with tuner import"
            )
        enqueued = [dict(each.system_attrs.get("fixed_params", each.params)) for each in waiting]
        if enqueued:
            n = len(enqueued)
            self._used.append(f"{n} enqueued trial{'s' if n > 1 else ''}")
        return [_as_plain(each) for each in enqueued]

    def _plain_attrs(self) -> dict[str, Any]:
        if "direction" not in self._created:
            return {}
        return {key: value for key, value in self._study.user_attrs.items() if _is_plain(value)}


def _trial_limit(callback: Callable[..., object]) -> int | None:
    """The number of trials of a `MaxTrialsCallback` that counts those that ended; else None."""
    if not isinstance(callback, MaxTrialsCallback):
        return None
    found = vars(callback)
    n_trials, states = found.get("_n_trials"), found.get("_states")
    counts_ended = states is None or TrialState.COMPLETE in states
    return n_trials if counts_ended and isinstance(n_trials, int) else None


def _unused_callback(name: str) -> str:
    if name in _TRACKERS:
        return f"callback {name}: the tuner writes these runs itself. Add --set {_TRACKERS[name]}"
    return (
        f"callback {name}: it would run in Optuna's own loop. Use trial.study.stop() in the "
        "objective, or the hooks on_best and on_finish"
    )


def _name(callback: object) -> str:
    return str(getattr(callback, "__name__", type(callback).__name__))


def _is_plain(value: object) -> bool:
    try:
        json.dumps(_as_plain(value))
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _as_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _as_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_plain(each) for each in value]
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    item = getattr(value, "item", None)
    return item() if callable(item) else value


def _call_text(name: str, found: Mapping[str, Any]) -> str:
    words = (f"{key}={value!r}" for key, value in found.items() if key != "name")
    return f"{name}({', '.join(words)})"


def problem_of(loaded: Loaded) -> str:
    """Why the program can't be tuned; empty if it can."""
    objective = loaded.call.objective
    inner = objective.func if isinstance(objective, partial) else objective
    module = str(getattr(inner, "__module__", ""))
    is_of_library = module.partition(".")[0] in ("optuna", "optuna_integration")
    # OptunaSearchCV calls it once, as a program does.
    if is_of_library and not module.startswith("optuna_integration.sklearn"):
        return (
            f"calls study.optimize through {module} ({_name(inner)}), which runs several rounds by "
            "itself. Write an objective(trial) and pass it to study.optimize."
        )
    if not callable(objective):
        return f"passes {objective!r} to study.optimize, which cannot be called."
    return ""
