"""`tuner.run`: one call does what the command line does."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from tuner.api.child import Child
from tuner.api.messages import Call
from tuner.api.progress import AfterTheLivePicture, Lines, Nothing, Place, Show, find_place
from tuner.api.study import Study, is_in_a_trial
from tuner.config import StudyConfig, load_study_file
from tuner.errors import ConfigError


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
        progress: Whether to show how the study goes.

    Raises:
        ConfigError: If the file is wrong; the message names file, key and value.
        DeviceError: If the devices asked for are not there or not free.
        StoreError: If the database can not be used.
        StudyFailed: If no trial has completed.
        StudyInterrupted: After Ctrl-C or a notebook's stop button; everything is saved.
    """
    _refuse_in_a_trial("tuner.run")
    words = tuple(f"{key}={_as_yaml(key, value)}" for key, value in (overrides or {}).items())
    config = load_study_file(
        Path(file), overrides=words, environ=os.environ, study=study, trials=trials
    )
    call = Call(file=os.fspath(file), overrides=words, study=study, trials=trials)
    return begin(call, config, wait=wait, progress=progress)


def begin(
    call: Call,
    config: StudyConfig,
    *,
    wait: bool,
    progress: bool,
    keep_open: Sequence[int] = (),
) -> Study:
    """Starts the process that runs a study, and waits for its begin or its end.

    Args:
        call: What it is to run.
        config: The same, checked.
        wait: Whether to wait for the end.
        progress: Whether to show how the study goes.
        keep_open: Descriptors that the process gets too.

    Raises:
        TunerError: If the study is refused, or has failed.
        StudyInterrupted: After Ctrl-C.
    """
    place = find_place()
    draws = progress and wait and place is Place.TERMINAL
    show = _show(place, config.study, wait=wait) if progress else Nothing()
    child = Child(_drawing(call) if draws else call, show.take, keep_open)
    study = Study(config.study, config.storage, child)
    if wait:
        study.wait()
    else:
        study._wait_for_begin()
    return study


def _show(place: Place, study: str, *, wait: bool) -> Show:
    if place is Place.TERMINAL:
        # In the background a live picture would fight with what the user types.
        return AfterTheLivePicture() if wait else Nothing()
    return Lines() if wait else Nothing()


def _drawing(call: Call) -> Call:
    from dataclasses import replace

    return replace(call, draws=True)


def _as_yaml(key: str, value: object) -> str:
    try:
        text: str = yaml.safe_dump(value, default_flow_style=True, width=10**9)
    except yaml.YAMLError as error:
        problem = f"is {value!r}, which a study file cannot hold."
        raise ConfigError(problem, file="tuner.run(overrides)", key=key) from error
    return text.removesuffix("\n...\n").rstrip("\n")


def _refuse_in_a_trial(name: str) -> None:
    if is_in_a_trial():
        raise ConfigError(
            f"{name}(...) was called by a process of a trial, which imports the module of the "
            'training function. Put the call below `if __name__ == "__main__":`.'
        )
