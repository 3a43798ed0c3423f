"""Messages before and after commands that change something."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tuner.actions.delete import Extent, FilesExtent
from tuner.actions.delete_objects import ObjectsExtent
from tuner.actions.enqueue import Enqueued
from tuner.actions.transfer.copy import Copied
from tuner.checkpoints.paths import FOLDER_NAME, StudyFiles
from tuner.config import StudyConfig
from tuner.devices.occupancy import size_text
from tuner.queries.locate import Place

_KIB = 1024


def enqueued_text(done: Enqueued, config: StudyConfig | None) -> str:
    skipped = ""
    if done.n_skipped:
        skipped = f" {_n(done.n_skipped, 'configuration')} left out: tried, or waiting, already."
    if not done.trial_numbers:
        return f"Nothing new to try in study {done.study!r}.{skipped}"
    numbers = ", ".join(map(str, done.trial_numbers))
    kind = "Trial" if len(done.trial_numbers) == 1 else "Trials"
    verb = "waits" if len(done.trial_numbers) == 1 else "wait"
    text = f"{kind} {numbers} of study {done.study!r} {verb} to be tried first.{skipped}"
    n_trials = done.trial_numbers[-1] + 1
    if config is not None and config.budget.trials is not None and n_trials > config.budget.trials:
        text += (
            f"\nThe study has {n_trials} trials now, more than its budget of "
            f"{config.budget.trials}. To try all: {_start(config, done.study)} --trials {n_trials}"
        )
    return text


def copied_text(done: Copied, target: Place, config: StudyConfig | None) -> str:
    lines = [
        f"{_n(done.n_copied, 'trial')} of study {done.origin!r} copied to the new study "
        f"{done.study!r} in {target.shown}."
    ]
    if done.left_out:
        lines.append(f"{_n(sum(done.left_out.values()), 'trial')} left out:")
        lines += [f"  {n}: {reason}" for reason, n in done.left_out.items()]
    if done.n_not_ended:
        lines.append(f"Not copied, without a result: {_n(done.n_not_ended, 'trial')}.")
    if config is not None:
        lines.append(f"To continue: {_start(config, done.study)}")
        if config.budget.trials is not None:
            lines.append(f"Its budget of {config.budget.trials} trials counts the copied ones too.")
    return "\n".join(lines)


def question(
    extent: Extent,
    files: FilesExtent | None,
    place: Place,
    objects: Sequence[ObjectsExtent] = (),
) -> str:
    """The text to confirm."""
    text = (
        f"Delete study {extent.study.name!r} from {place.shown}: {_n(extent.n_trials, 'trial')}, "
        f"{_n(extent.n_attempts, 'attempt')}"
    )
    return f"{text}{_with_files(files, objects)}?"


def deleted_text(
    extent: Extent,
    files: FilesExtent | None,
    place: Place,
    objects: Sequence[ObjectsExtent] = (),
) -> str:
    """What was deleted, and what happens to remaining files."""
    text = (
        f"Deleted: study {extent.study.name!r}, {_n(extent.n_trials, 'trial')}, "
        f"{_n(extent.n_attempts, 'attempt')}{_with_files(files, objects)}."
    )
    if files is not None:
        return text
    lines = [text, _files_stay(extent, place)]
    if extent.object_folders:
        lines.append(
            f"Its objects stay in {', '.join(extent.object_folders)}: checkpoints and logs. Remove "
            "this folder with the store's own tools; with --files, tuner delete would have."
        )
    return "\n".join(lines)


def _with_files(files: FilesExtent | None, objects: Sequence[ObjectsExtent]) -> str:
    rest = f", and {_files_text(files)} in {files.root}" if files is not None else ""
    return rest + "".join(
        f", and {_n(len(each.keys), 'object')} in {each.folder}" for each in objects
    )


def _files_stay(extent: Extent, place: Place) -> str:
    where = f"{FOLDER_NAME}/ next to its study file"
    if place.config is not None:
        where = str(StudyFiles(folder=place.config.home, study=extent.study.name).root)
    return (
        f"Its files stay in {where}: logs and checkpoints. A new study of this name does not use "
        "them: they are moved aside when it starts. Delete them with --files, or by hand."
    )


def _files_text(files: FilesExtent) -> str:
    return f"{_n(files.n_files, 'file')} ({_size(files.n_bytes)})"


def _size(n_bytes: int) -> str:
    if n_bytes < _KIB:
        return _n(n_bytes, "byte")
    return f"{n_bytes / _KIB:.0f} KiB" if n_bytes < _KIB**2 else size_text(n_bytes)


def _start(config: StudyConfig, study: str) -> str:
    return shlex.join(["python", "-m", "tuner.run", config.file, "--study", study])


def _n(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")
