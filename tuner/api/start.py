"""`tuner.run` and `tuner.tune`: the command line as function calls."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

import yaml

from tuner.api.arguments import CALL, config_of_text, study_text
from tuner.api.child import Child
from tuner.api.function import check_signature, name_or_pickle
from tuner.api.messages import Call
from tuner.api.notebook import NotebookShow
from tuner.api.progress import AfterTheLivePicture, Lines, Nothing, Place, Show, find_place
from tuner.api.study import Study, is_in_a_trial
from tuner.checkpoints.paths import StudyFiles
from tuner.compose.rank_check import refuse_several_ranks
from tuner.config import Direction, StudyConfig, load_study_file
from tuner.errors import ConfigError
from tuner.launch.stored_function import StoredFunction, store

_IN_THE_BACKGROUND: Final = (
    "Study {name!r} runs in the background until its end or the end of this process. "
    "Progress: study.trials and study.best. Stop: study.stop()."
)


def run(
    file: str | os.PathLike[str] = "study.yaml",
    *,
    trials: int | None = None,
    study: str | None = None,
    overrides: Mapping[str, object] | None = None,
    wait: bool = True,
    progress: bool = True,
) -> Study:
    """Runs the study of a study file, as `python -m tuner.run` does. The same call continues it.

    Args:
        file: The study file.
        trials: Replaces `budget.trials`.
        study: Replaces the name of the study.
        overrides: Replaces keys of the study file, such as `{"sampler.seed": 1}`.
        wait: Whether to return at the end of the study. False returns when its trials start, and
            the study runs in the background until its end or the end of this process.
        progress: Whether to show progress.

    Raises:
        ConfigError: If the file is wrong; the message names file, key and value.
        DeviceError: If the requested devices do not exist or are not free.
        StoreError: If the database can not be used.
        StudyFailed: If no trial has completed.
        StudyInterrupted: After Ctrl-C or a notebook's stop button; everything is saved.
    """
    _refuse_other_processes("tuner.run")
    words = tuple(f"{key}={_as_yaml(key, value)}" for key, value in (overrides or {}).items())
    config = load_study_file(
        Path(file), overrides=words, environ=os.environ, study=study, trials=trials
    )
    call = Call(file=os.fspath(file), overrides=words, study=study, trials=trials)
    started = start(call, config, wait=wait, progress=progress)
    return _followed(started, wait=wait, progress=progress)


def tune(
    train: Callable[..., object] | str | None = None,
    space: Mapping[str, object] | Callable[..., object] | str | None = None,
    objectives: Mapping[str, str] | None = None,
    *,
    trials: int | None = None,
    name: str | None = None,
    storage: str | None = None,
    devices: str | Sequence[int | str] | None = None,
    sampler: str | Mapping[str, object] | None = None,
    pruner: str | Mapping[str, object] | None = None,
    budget: Mapping[str, object] | None = None,
    trial: Mapping[str, object] | None = None,
    wait: bool = True,
    progress: bool = True,
    **keys: object,
) -> Study:
    """Tunes a function. The same call continues the study.

    Args:
        train: Called for each trial, with the trial as its argument: any function, including one in
            a notebook or in `__main__`, or text such as `"module:function"`. None if `trial` has a
            command.
        space: The parameters, as `search_space` in a study file, or as Optuna's distributions; a
            function that suggests them; or the path of a file. None if `train` suggests its own.
        objectives: The objectives, such as `{"accuracy": "maximize"}`. Default: the number that
            `train` returns is minimized.
        trials: Number of trials of the study, including those of earlier calls. None: no limit.
        name: Name of the study. Default: the name of the function.
        storage: URL of the database. Default: `sqlite:///<name>.db` in the current folder.
        devices: `"auto"`, `"all"`, `"cpu:4"` or a list of GPUs, as in a study file.
        sampler: As in a study file.
        pruner: As in a study file.
        budget: As in a study file, such as `{"time": "30m"}`.
        trial: Other keys of `trial` in a study file, such as `{"resources": {"gpus": 2}}`.
        wait: Whether to return at the end of the study. False returns when its trials start, and
            the study runs in the background until its end or the end of this process.
        progress: Whether to show progress.
        keys: Any other key of a study file, such as `confirm={"top": 3}`.

    Raises:
        ConfigError: If an argument is wrong; the message names it.
        DeviceError: If the requested devices do not exist or are not free.
        StoreError: If the database can not be used, or its study has another space.
        StudyFailed: If no trial has completed.
        StudyInterrupted: After Ctrl-C or a notebook's stop button; everything is saved.
    """
    _refuse_other_processes("tuner.tune")
    function, stored_train = _reference(train, "train")
    found_space, stored_space = _reference(space, "space") if callable(space) else (space, None)
    values: dict[str, object] = {
        "study": name or _name_of(train),
        "storage": storage,
        "objectives": objectives,
        "trial": {**(trial or {}), **({} if function is None else {"function": function})},
        "search_space": found_space,
        "sampler": sampler,
        "pruner": pruner,
        "devices": devices,
        "budget": _with_trials(budget, trials),
        **keys,
    }
    pickled = [each for each in (stored_train, stored_space) if each]
    started = _start_call(values, pickled, wait=wait, progress=progress)
    return _followed(started, wait=wait, progress=progress)


def _start_call(
    values: Mapping[str, object], pickled: Sequence[StoredFunction], *, wait: bool, progress: bool
) -> Study:
    """Stores the functions that no module holds, and starts the study of a call of `tune`."""
    text, folder = study_text(values), Path.cwd()
    config = config_of_text(text, folder)
    files = StudyFiles(folder=folder, study=config.study)
    with ExitStack() as stack:
        stored = [store(each, files.functions) for each in pickled]
        for each in stored:
            # Its lock lives on in the process that runs the study.
            stack.callback(os.close, each.fd)
        call = Call(
            file=CALL,
            text=text,
            folder=str(folder),
            import_path=(*map(os.path.abspath, sys.path), *(str(each.folder) for each in stored)),
        )
        keep_open = [each.fd for each in stored]
        return start(call, config, wait=wait, progress=progress, keep_open=keep_open)


def start(
    call: Call,
    config: StudyConfig,
    *,
    wait: bool,
    progress: bool,
    keep_open: Sequence[int] = (),
) -> Study:
    """Starts the process that runs a study.

    Args:
        call: What it runs.
        config: The same, checked.
        wait: Whether the caller waits for the end.
        progress: Whether to show progress.
        keep_open: Descriptors that the process inherits.
    """
    place = find_place()
    draws = progress and wait and place is Place.TERMINAL
    show = _show(place, config, wait=wait) if progress else Nothing()
    is_drawn = isinstance(show, NotebookShow)
    child = Child(replace(call, draws=draws, is_drawn=is_drawn), show.take, keep_open)
    return Study(config.study, config.storage, child)


def _followed(study: Study, *, wait: bool, progress: bool) -> Study:
    """Waits for the end of a study; or for its start, and then shows how to follow and stop it.

    Raises:
        TunerError: If the study is refused, or has failed.
        StudyInterrupted: After Ctrl-C.
    """
    if wait:
        study.wait()
        return study
    study._wait_for_begin()
    if progress and study.is_running:
        print(_IN_THE_BACKGROUND.format(name=study.name), flush=True)
    return study


def _reference(
    function: Callable[..., object] | str | None, key: str
) -> tuple[str | None, StoredFunction | None]:
    """A function's name for the study file, and the function itself if it must be stored."""
    if function is None or isinstance(function, str):
        return function, None
    if not callable(function):
        problem = f"is {function!r}, but must be a function, or text such as 'module:function'."
        raise ConfigError(problem, file=CALL, key=key)
    check_signature(function, key)
    found = name_or_pickle(function, key)
    return (found, None) if isinstance(found, str) else (found.target, found)


def _name_of(train: object) -> str:
    name = train.rpartition(":")[2] if isinstance(train, str) else getattr(train, "__name__", "")
    if not name or name == "<lambda>":
        problem = "is missing. Name the study: tuner.tune(..., name='digits')."
        raise ConfigError(problem, file=CALL, key="name")
    return str(name)


def _with_trials(budget: Mapping[str, object] | None, trials: int | None) -> object:
    if trials is None:
        return budget
    if budget is not None and "trials" in budget:
        problem = f"is {trials}, but budget has trials as well. Give one of them."
        raise ConfigError(problem, file=CALL, key="trials")
    return {**(budget or {}), "trials": trials}


def _show(place: Place, config: StudyConfig, *, wait: bool) -> Show:
    if place is Place.NOTEBOOK:
        name, direction = next(iter(config.objectives.items()))
        return NotebookShow(config.study, name, is_maximized=direction is Direction.MAXIMIZE)
    if place is Place.TERMINAL:
        # In the background a live picture would fight with what the user types.
        return AfterTheLivePicture() if wait else Nothing()
    return Lines() if wait else Nothing()


def _as_yaml(key: str, value: object) -> str:
    try:
        text: str = yaml.safe_dump(value, default_flow_style=True, width=10**9)
    except yaml.YAMLError as error:
        problem = f"is {value!r}, which a study file cannot hold."
        raise ConfigError(problem, file="tuner.run(overrides)", key=key) from error
    return text.removesuffix("\n...\n").rstrip("\n")


def _refuse_other_processes(name: str) -> None:
    refuse_several_ranks("python " + shlex.join(sys.argv), os.environ)
    if is_in_a_trial():
        raise ConfigError(
            f"{name}(...) was called by a process of a trial, which imports the module of the "
            'training function. Put the call below `if __name__ == "__main__":`.'
        )
