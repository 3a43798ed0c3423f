"""Data for the pages."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime

import sqlalchemy as sa
from optuna.distributions import BaseDistribution

from tuner.app.data.best import read_best
from tuner.app.data.cache import Kept
from tuner.app.data.connection import ReadOnlyDatabase
from tuner.app.data.control import Asked, Present, read_asked, read_present
from tuner.app.data.convergence.rungs import read_rungs
from tuner.app.data.devices.history import SETTLED_S, DeviceHistory
from tuner.app.data.devices.leases import GrowingLeases, Leases
from tuner.app.data.devices.trial_use import TrialUse, held_by, read_trial_use
from tuner.app.data.metrics.curves import Reports, read_reports
from tuner.app.data.metrics.stored import GrowingFigures, StoredFigures
from tuner.app.data.overview import StudyLine, read_overview
from tuner.app.data.trials.columns import GrowingTrials, TrialColumns
from tuner.app.data.trials.costs import (
    GrowingEnergy,
    TrialCosts,
    device_hours_of,
)
from tuner.app.data.trials.curves import Curves, GrowingCurves
from tuner.app.data.trials.lineage import Lineage, read_lineage
from tuner.app.data.trials.one_trial import OneTrial, read_trial
from tuner.app.data.trials.table import GrowingParams, Params
from tuner.errors import StoreError
from tuner.queries.allocations import StoredAllocation, read_allocations
from tuner.queries.locate import StoredStudy, stored_studies
from tuner.queries.notes import Note, read_notes
from tuner.queries.results.best import BestConfiguration
from tuner.queries.results.confirmations import Confirmation, read_confirmation
from tuner.queries.results.range_ends import RangeEnd, read_range_ends
from tuner.queries.results.rung_trust import read_rung_trust
from tuner.queries.status import Progress, read_progress
from tuner.queries.studies import Objective, read_objectives, read_studies
from tuner.queries.trials.params import read_distributions
from tuner.search.rungs.order.stored_trust import StoredTrust

_looks: dict[str, Look] = {}
_looks_lock = threading.Lock()


def look_at(url: str) -> Look:
    """This process's reader, shared by all browsers.

    A replaced file is read again; nothing from the old file is kept.

    Raises:
        StoreError: If the database does not exist or can't be read.
    """
    with _looks_lock:
        if url in _looks and not _looks[url].is_current:
            _looks.pop(url).close()
        if url not in _looks:
            _looks[url] = Look(url)
        return _looks[url]


class Look:
    """Reads one database; data that can't have changed is read once.

    Raises:
        StoreError: Each method, if the database can't be read now.
    """

    def __init__(self, url: str) -> None:
        self._database = ReadOnlyDatabase(url)
        self.device_history = DeviceHistory(self._database)
        self._trials: dict[StoredStudy, GrowingTrials] = {}
        self._leases: dict[StoredStudy | None, GrowingLeases] = {}
        self._curves: dict[StoredStudy, GrowingCurves] = {}
        self._params: dict[StoredStudy, GrowingParams] = {}
        self._energy: dict[StoredStudy, GrowingEnergy] = {}
        self._figures: dict[StoredStudy, GrowingFigures] = {}
        self._lock = threading.Lock()
        self._soon: set[StoredStudy] = set()
        self._last_shown: StoredStudy | None = None
        self.kept = Kept()

    @property
    def shown_url(self) -> str:
        return self._database.shown_url

    @property
    def is_current(self) -> bool:
        """Whether the database's path still names the file that is open."""
        return self._database.is_current

    def read_ahead(self, study: StoredStudy, now: datetime) -> None:
        """Reads what is read once of a study: seconds for one of 100,000 trials.

        It ends early when a page shows another study, which would have to wait for it.
        """
        trials = self._database.read(self._growing_trials(study).refresh)
        for read in (
            lambda: self.params(study, trials),
            lambda: self.leases(study, now),
            lambda: self.stored_figures(study, trials),
        ):
            if self._last_shown in (None, study):
                read()

    def studies(self) -> dict[str, StoredStudy]:
        """By name, the oldest first."""
        found = self._database.read(stored_studies)
        return {name: StoredStudy(id=study_id, name=name) for name, study_id in found.items()}

    def overview(self, now: datetime) -> list[StudyLine]:
        return self._database.read(lambda connection: read_overview(connection, now))

    def progress(self, study: StoredStudy, now: datetime) -> Progress:
        def work(connection: sa.Connection) -> Progress:
            (summary,) = read_studies(connection, now, study.id)
            return read_progress(connection, summary)

        return self._database.read(work)

    def rung_trust(self, study: StoredStudy) -> StoredTrust | None:
        """Reliability of the rungs of its pruner; None if not checked."""
        return self._database.read(lambda connection: read_rung_trust(connection, study.id))

    def objectives(self, study: StoredStudy) -> tuple[Objective, ...]:
        return self._database.read(read_objectives).get(study.id, ())

    def trials(self, study: StoredStudy) -> TrialColumns:
        self._last_shown = study
        return self._database.read(self._growing_trials(study).refresh)

    def trials_soon(self, study: StoredStudy, *, wait: bool) -> TrialColumns | None:
        """The trials if they were read before, or with `wait`; else None: a thread reads them."""
        growing = self._growing_trials(study)
        if wait or growing.is_read:
            return self._database.read(growing.refresh)
        with self._lock:
            if study not in self._soon:
                self._soon.add(study)
                threading.Thread(target=self._read_soon, args=(study,), daemon=True).start()
        return None

    def _read_soon(self, study: StoredStudy) -> None:
        try:
            self._database.read(self._growing_trials(study).refresh)
        except StoreError:
            pass  # The page says so when it reads the same.
        finally:
            with self._lock:
                self._soon.discard(study)

    def params(self, study: StoredStudy, trials: TrialColumns) -> Params:
        with self._lock:
            growing = self._params.setdefault(study, GrowingParams(study.id))
        return self._database.read(lambda connection: growing.refresh(connection, trials))

    def distributions(self, study: StoredStudy) -> dict[str, BaseDistribution]:
        return self._database.read(lambda connection: read_distributions(connection, study.id))

    def curves(self, study: StoredStudy, trials: TrialColumns) -> Curves:
        """Curves of trials. Returns the same object while nothing can have changed."""
        with self._lock:
            growing = self._curves.setdefault(study, GrowingCurves())
        if not trials.is_finished.all():
            return self._database.read(lambda connection: growing.refresh(connection, trials))
        return self.kept.get(
            ("curves read", study),
            (trials,),
            lambda: self._database.read(lambda connection: growing.refresh(connection, trials)),
        )

    def trials_without_curve(self, study: StoredStudy, trials: TrialColumns) -> list[int]:
        """Numbers of trials with only infinite or NaN reports; call `curves` first."""
        with self._lock:
            growing = self._curves.setdefault(study, GrowingCurves())
        return growing.without_values(trials)

    def rungs(self, study: StoredStudy, last_step: int) -> list[int]:
        return self._database.read(lambda connection: read_rungs(connection, study.id, last_step))

    def lineage(self, study: StoredStudy) -> Lineage | None:
        """Replacements in a population; None if the study has none."""
        return self._database.read(lambda connection: read_lineage(connection, study.id))

    def stored_figures(
        self, study: StoredStudy, trials: TrialColumns
    ) -> Mapping[int, StoredFigures]:
        """Last metrics, numeric attributes and numbers of reports, by trial id."""
        with self._lock:
            growing = self._figures.setdefault(study, GrowingFigures(study.id))
        return self._database.read(lambda connection: growing.refresh(connection, trials))

    def reports(self, study: StoredStudy, value_name: str, trials: TrialColumns) -> Reports:
        """All metrics of some trials, by trial id."""
        return self._database.read(
            lambda connection: read_reports(connection, study.id, value_name, trials.ids.tolist())
        )

    def leases(self, study: StoredStudy | None, now: datetime) -> Leases:
        """Leases of one study, or of all."""
        with self._lock:
            growing = self._leases.setdefault(study, GrowingLeases(study.id if study else None))
        return self._database.read(lambda connection: growing.refresh(connection, now))

    def allocations(self, study: StoredStudy) -> list[StoredAllocation]:
        """A study's allocations, including ended ones."""
        return self._database.read(lambda connection: read_allocations(connection, study.id))

    def costs(self, study: StoredStudy, now: datetime) -> TrialCosts:
        """Costs of each trial of a study so far; the same object while nothing has changed."""
        trials, leases = self.trials(study), self.leases(study, now)
        with self._lock:
            growing = self._energy.setdefault(study, GrowingEnergy(study.id))
        energy_kwh = self._database.read(
            lambda connection: growing.refresh(connection, trials, now)
        )

        def make() -> TrialCosts:
            return TrialCosts(device_hours=device_hours_of(leases), energy_kwh=energy_kwh)

        if leases.columns.is_held.any():
            return make()
        return self.kept.get(("costs", study), (leases.columns, energy_kwh), make)

    def trial(self, study: StoredStudy, number: int, now: datetime) -> OneTrial | None:
        objectives = self.objectives(study)
        return self._database.read(
            lambda connection: read_trial(connection, study, objectives, number, now)
        )

    def trial_use(self, study: StoredStudy, number: int, now: datetime) -> TrialUse | None:
        """Activity of a trial's devices; None if it never had one."""
        leases = self.leases(study, now)
        held = held_by(leases, number)
        if not held:
            return None

        def make() -> TrialUse:
            return self._database.read(
                lambda connection: read_trial_use(connection, held, leases.devices, now)
            )

        if held[-1].end_s > now.timestamp() - SETTLED_S:
            return make()
        # Samples of an hour ago say no less in coarser columns: they are not asked for again.
        return self.kept.get(("trial use", study, number, held[-1].end_s), (), make)

    def present(self, study: StoredStudy, now: datetime) -> Present:
        return self._database.read(lambda connection: read_present(connection, study.id, now))

    def notes(self, study: StoredStudy) -> Mapping[int | None, Note]:
        """By the number of the trial; None: on the study itself."""
        return self._database.read(lambda connection: read_notes(connection, study.id))

    def asked(self, study: StoredStudy) -> list[Asked]:
        return self._database.read(lambda connection: read_asked(connection, study.id))

    def confirmation(self, study: StoredStudy) -> Confirmation | None:
        """Results of confirmation runs; None if there are none."""
        return self._database.read(lambda connection: read_confirmation(connection, study.name))

    def range_ends(self, study: StoredStudy) -> list[RangeEnd]:
        """Parameters whose best values lie at an end of their range."""
        trials = self.trials(study)

        def make() -> list[RangeEnd]:
            return self._database.read(lambda connection: read_range_ends(connection, study.id))

        return self.kept.get(("range ends", study), (trials,), make)

    def best(self, study: StoredStudy, *, n: int, now: datetime) -> list[BestConfiguration]:
        objectives, growing = self.objectives(study), self._growing_trials(study)

        def work(connection: sa.Connection) -> list[BestConfiguration]:
            trials = growing.refresh(connection)
            return read_best(connection, study.id, study.name, objectives, trials, n=n, now=now)

        return self._database.read(work)

    def close(self) -> None:
        self._database.close()

    def _growing_trials(self, study: StoredStudy) -> GrowingTrials:
        with self._lock:
            if study not in self._trials:
                self._trials[study] = GrowingTrials(
                    study.id, [each.name for each in self.objectives(study)]
                )
            return self._trials[study]
