"""A study that Python code has started: its results, and how to stop it."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import tuner.errors
from tuner.api.child import Child
from tuner.api.messages import Refused
from tuner.errors import EXIT_STUDY_FAILED, ConfigError, StudyFailed, TunerError
from tuner.queries.locate import Place, choose_study, find_place, reading
from tuner.queries.results.best import BestConfiguration, load_best
from tuner.store.connection.database import shown_url

if TYPE_CHECKING:
    from tuner.app.charts.style import Figure

_POLL_S = 0.2
#: Names of Optuna's study, and what has their meaning here.
_OF_OPTUNA = {
    "best_params": "best.params",
    "best_value": "best.value",
    "best_trial": "best",
    "get_trials": "trials",
    "trials_dataframe": "trials",
    "study_name": "name",
}


class StudyInterrupted(KeyboardInterrupt):
    """Ctrl-C, or the stop button of a notebook, has stopped a study. Everything is saved.

    Args:
        study: The study; the call that started it continues it.
    """

    def __init__(self, study: Study) -> None:
        super().__init__(
            f"Study {study.name!r} is stopped and everything is saved. The same call continues it."
        )
        self.study = study


class Study:
    """A study that this process has started. `tuner.run` and `tuner.tune` return it.

    Results come from the database, so they can be read at any time, also while trials run.
    """

    def __init__(self, name: str, storage: str, child: Child) -> None:
        self._name = name
        self._storage = storage
        self._child = child
        self._is_told_to_stop = False

    @property
    def name(self) -> str:
        """Name of the study in the database."""
        return self._name

    @property
    def storage(self) -> str:
        """URL of the database. It may hold a password."""
        return self._storage

    @property
    def is_running(self) -> bool:
        """Whether the study's process still works."""
        return not self._child.has_ended

    @property
    def best(self) -> BestConfiguration:
        """The best configuration so far, the one that `tuner best` prints.

        Raises:
            StoreError: If no trial has completed.
        """
        return load_best(self._storage, self._name)

    @property
    def trials(self) -> Any:
        """All trials so far, with the columns of `tuner trials --csv`.

        A pandas DataFrame, or a list of dictionaries if pandas is not installed.
        """
        records = self._records()
        try:
            pandas = importlib.import_module("pandas")
        except ModuleNotFoundError:
            return records
        return pandas.DataFrame.from_records(records)

    @property
    def figures(self) -> Mapping[str, Figure]:
        """The charts of the dashboard as Plotly figures, by title.

        Raises:
            ConfigError: If the packages of the dashboard are not installed.
        """
        from tuner.monitoring.dashboard_process import check_installed

        check_installed()
        report = importlib.import_module("tuner.app.report")
        place = self._place()
        with reading(place) as (_, connection):
            stored = choose_study(connection, place)
        found: Mapping[str, Figure] = report.study_figures(place.url, stored)
        return found

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            problem = f"{type(self).__name__!r} object has no attribute {name!r}."
            if wanted := _OF_OPTUNA.get(name):
                problem += f" Write study.{wanted}."
            raise AttributeError(problem, name=name, obj=self)

    def stop(self, *, wait: bool = True) -> None:
        """Stops the study as Ctrl-C does: trials save their state, and the same call continues.

        Args:
            wait: Whether to return only when everything has stopped.
        """
        if not self._is_told_to_stop:
            self._is_told_to_stop = True
            self._child.interrupt()
        if wait:
            self._child.wait()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the end of the study.

        Ctrl-C (or a notebook's stop button) stops the study; a second one ends its trials at once.

        Args:
            timeout_s: Maximum wait in seconds; None for no limit.

        Returns:
            Whether the study has ended.

        Raises:
            TunerError: If the study was refused or has failed.
            StudyInterrupted: After Ctrl-C, when everything is saved.
        """
        end_at_s = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while not self._child.has_ended:
                left_s = _POLL_S if end_at_s is None else end_at_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._child.wait(min(_POLL_S, left_s))
        except KeyboardInterrupt:
            self._stop_after_interrupt()
            raise StudyInterrupted(self) from None
        self._raise_failure()
        return True

    def _wait_for_begin(self) -> None:
        """Waits until trials start.

        Raises:
            TunerError: If the study was refused.
            StudyInterrupted: After Ctrl-C.
        """
        try:
            self._child.wait_for_begin()
        except KeyboardInterrupt:
            self._stop_after_interrupt()
            raise StudyInterrupted(self) from None
        if self._child.has_ended:
            self._raise_failure()

    def _raise_failure(self) -> None:
        """Raises the error of an ended study.

        Raises:
            TunerError: If the study was refused or has failed.
        """
        end = self._child.outcome()
        if isinstance(end, Refused):
            raise error_of(end)
        if end.exit_code == EXIT_STUDY_FAILED:
            raise StudyFailed(end.summary)

    def _stop_after_interrupt(self) -> None:
        """Waits until everything is saved; passes each further Ctrl-C to the study."""
        self._is_told_to_stop = True
        while not self._child.has_ended:
            try:
                self._child.interrupt()
                while not self._child.wait(_POLL_S):
                    pass
            except KeyboardInterrupt:
                continue

    def _records(self) -> list[dict[str, object]]:
        from tuner.queries.studies import read_objectives
        from tuner.queries.trials.listing import Choice, read_trials
        from tuner.terminal.trials import trials_records

        place = self._place()
        with reading(place) as (_, connection):
            stored = choose_study(connection, place)
            objectives = read_objectives(connection)[stored.id]
            now = datetime.now(UTC)
            found = read_trials(connection, stored.id, objectives, Choice(), now=now)
        return trials_records(found, objectives)

    def _place(self) -> Place:
        return find_place(self._storage, self._name, os.environ)

    def __repr__(self) -> str:
        state = "running" if self.is_running else "ended"
        return f"<Study {self._name!r} in {shown_url(self._storage)}, {state}>"


def error_of(end: Refused) -> TunerError:
    """The exception that the command line would have ended with."""
    kind = getattr(tuner.errors, end.error, StudyFailed)
    error: TunerError = kind(end.message)
    error.exit_code = end.exit_code
    if isinstance(error, ConfigError):
        error.key = end.key
    return error


def is_in_a_trial() -> bool:
    """Whether this process was forked for trials, or imports the user's modules for them."""
    preload = sys.modules.get("tuner.launch.local_host.preload")
    return bool(getattr(preload, "import_path", ()))
