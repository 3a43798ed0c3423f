"""The study as the dispatcher sees it: ask for a trial, judge a report, record the outcome.

A thin layer over `optuna.Study`, so that samplers, pruners and other tools work unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import optuna
from optuna.distributions import json_to_distribution
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.trial import TrialState

from tuner.checkpoints.paths import StudyFiles
from tuner.checkpoints.trial_folders import StudyKey
from tuner.config import Direction
from tuner.domain.messages import Json
from tuner.search.asked_trial import AskedTrial
from tuner.search.ended_trials import format_end, typical_length
from tuner.search.incumbent import BestTrial, Incumbent
from tuner.search.optuna_study import TunedStudy
from tuner.search.population.own_folders import BegunAt, copies_in
from tuner.search.pruners.step_checks import StepCounts
from tuner.search.samplers.suggestions import Suggestions
from tuner.search.scheduler import CONTINUE, Ending, SchedulerContext, Verdict
from tuner.search.schedulers import make_scheduler
from tuner.search.study_identity import (
    all_params,
    key_of,
    known_params,
    open_study,
    to_optuna,
    write_trials,
)
from tuner.search.trial_attributes.infeasible import InfeasibleTrials
from tuner.search.trial_attributes.last_report import LastReports
from tuner.search.trial_attributes.progress import ProgressMarks
from tuner.search.trial_attributes.vector_curve import VectorCurves
from tuner.search.trial_counts import TrialCounts
from tuner.search_spaces import AnySpace, ParamValue, SearchSpace
from tuner.store.optuna_compat import suggest, trial_id_of
from tuner.store.optuna_tables.statements import IDENTITY_ATTR
from tuner.store.optuna_tables.storage import BufferedStorage
from tuner.store.records.dispatchers.ownership import NoTrialLeft
from tuner.store.records.population_rows import COPY_KEY
from tuner.store.records.upload_rows import UploadRecords


class StudySearch:
    """One study with its space, sampler and pruner, over the dispatcher's storage.

    Args:
        storage: Holds the study in memory.
        name: Name of the study; it is created if it does not exist.
        objectives: Names and directions, in order.
        space: The space of the study file.
        sampler: Optuna's sampler.
        pruner: Optuna's pruner.

    Raises:
        StudyMismatch: If the stored study has another space or other objectives.
    """

    def __init__(
        self,
        storage: BufferedStorage,
        name: str,
        *,
        objectives: Mapping[str, Direction],
        space: AnySpace | None,
        sampler: BaseSampler,
        pruner: BasePruner,
    ) -> None:
        self.objectives = tuple(objectives)
        self._storage = storage
        self._space = space
        directions = [to_optuna(direction) for direction in objectives.values()]
        study_id = open_study(storage, name, directions, self.objectives, space)
        self.study = TunedStudy(name, storage, sampler=sampler, pruner=pruner)
        self.study_id = study_id
        key = key_of(storage.get_study_user_attrs(study_id).get(IDENTITY_ATTR))
        assert key is not None, "open_study identifies it"
        #: Identifies the study's files.
        self.key: StudyKey = key
        self._asked: dict[int, optuna.Trial] = {}
        self.incumbent = Incumbent(self.study, self.objectives, self.params_of)
        #: Suggestions of the sampler.
        self.suggestions = Suggestions(self.study, storage)
        context = SchedulerContext(
            study=self.study,
            storage=storage,
            study_id=study_id,
            objectives=self.objectives,
            directions=tuple(directions),
            space=space,
        )
        self.scheduler = make_scheduler(pruner, context)
        self.study.paused = lambda: self.scheduler.paused
        if self.scheduler.begin_next is not None:
            self.study.begin = self.scheduler.begin_next
        #: Checks of the programs' step numbers.
        self.steps = StepCounts(storage, pruner)
        self.progress = ProgressMarks(storage)
        self._curves = VectorCurves(storage)
        #: The last reports of earlier attempts.
        self.last_reports = LastReports(storage, self.steps, directions)
        self._infeasible = InfeasibleTrials(storage, study_id)
        self.counts = TrialCounts(storage, study_id, self.scheduler, self._infeasible)

    def write_copy(self, storage: BufferedStorage) -> None:
        """Writes the study and its trials, as they are in memory, into another database.

        Raises:
            StoreError: If that cannot be written.
        """
        directions = list(self.study.directions)
        name = self.study.study_name
        study_id = open_study(storage, name, directions, self.objectives, self._space)
        write_trials(self._storage.get_all_trials(self.study_id), storage, study_id)

    # -- waiting -----------------------------------------------------------------------------

    @property
    def has_waiting(self) -> bool:
        """Whether a trial waits for a device that can run here."""
        return self.study.has_waiting

    def take_only(self, fits: Callable[[Mapping[str, ParamValue]], bool]) -> None:
        """Leaves waiting trials that do not fit here to other dispatchers.

        Args:
            fits: Whether a trial with these parameters fits; some may be unknown.
        """
        self.study.may_take = lambda trial: fits(known_params(trial, self._space))

    def left_to_others(self) -> Mapping[int, Mapping[str, ParamValue]]:
        """Parameters of the trials that wait and do not fit here, by number."""
        left = self.study.waiting_elsewhere()
        return {trial.number: known_params(trial, self._space) for trial in left}

    @property
    def is_exhausted(self) -> bool:
        """Whether no trial is left to start."""
        is_exhausted = bool(self.study.guard.why_given_up) or self.scheduler.is_exhausted
        if is_exhausted is not None:
            return is_exhausted
        return self.suggestions.are_exhausted(self.counts.n_waiting)

    @property
    def why_exhausted(self) -> str:
        reason = self.study.guard.why_given_up or self.scheduler.exhausted_reason
        return reason or "every configuration of the space was tried"

    @property
    def best(self) -> BestTrial | None:
        """The best completed trial; with several objectives the newest on the Pareto front."""
        return self.incumbent.best

    def sync(self) -> None:
        """Reads changes by other dispatchers and other Optuna programs."""
        for trial in self._storage.refresh(self.study_id):
            if trial.state is TrialState.COMPLETE:
                self.incumbent.consider(trial)
            self._infeasible.sync(trial)
            self.scheduler.sync(trial)

    # -- asking ------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether `ask` answers at once; if not, its suggestion is in the making from now on."""
        if self.study.has_waiting or not self.scheduler.needs_suggestion:
            return True
        return self.suggestions.is_ready

    def ask(self) -> AskedTrial | None:
        """The next trial: a waiting one (enqueued, cancelled, lost), else a new one.

        None if other dispatchers have started as many as the study may have.
        """
        n_known = self._storage.n_known(self.study_id)
        try:
            trial = self.study.ask()
        except NoTrialLeft:
            self.sync()
            return None
        self._asked[trial_id_of(trial)] = trial
        return self._begin(trial, is_new=trial.number >= n_known)

    def resume(self, *, is_last: bool = False, is_closing: bool = False) -> AskedTrial | None:
        """The paused trial to resume next; None if there is none.

        Args:
            is_last: Nothing else will happen: if no trial is promotable and none of the study has
                completed, the best of the highest rung continues.
            is_closing: No new trial will start: if no trial is promotable, the best of the highest
                rung continues.
        """
        is_last = is_closing or (is_last and self.lacks_a_winner)
        trial_id = self.scheduler.resume(is_last=is_last)
        while trial_id is not None and not is_last and self.scheduler.gives_up(trial_id):
            self.prune(trial_id)
            trial_id = self.scheduler.resume(is_last=is_last)
        if trial_id is None:
            return None
        self.steps.resumed(trial_id)
        return AskedTrial(
            trial_id=trial_id,
            number=self._storage.get_trial_number_from_id(trial_id),
            params=self.params_of(trial_id),
            is_new=False,
        )

    @property
    def lacks_a_winner(self) -> bool:
        """Whether trials are paused while none runs and none has completed.

        A population needs all of them.
        """
        return self.scheduler.lacks_winner(self.counts.by_state())

    def copy_states(
        self,
        files: StudyFiles,
        begun_at: BegunAt | None = None,
        uploads: UploadRecords | None = None,
    ) -> None:
        """Enables a population to copy the checkpoints of its trials.

        Args:
            files: Paths of the checkpoints.
            begun_at: Start times of the trials; None if folders hold no identity files.
            uploads: Records of an object store; None if there is none.
        """
        copies = copies_in(
            files,
            begun_at,
            storage=self._storage,
            study_id=self.study_id,
            key=self.key,
            uploads=uploads,
        )
        self.scheduler.set_copies(copies)

    def is_copy(self, trial_id: int) -> bool:
        """Whether a trial continues from the checkpoint of another one."""
        return COPY_KEY in self._storage.get_trial(trial_id).system_attrs

    def resumes_from(self, trial_id: int, step: int | None) -> None:
        """Records that a trial continues from an older checkpoint than its newest, or from none.

        Args:
            trial_id: The trial.
            step: Step of the checkpoint; None if it starts from the beginning.
        """
        if step is None:
            self.steps.starts_over(trial_id)
        self.scheduler.resumes_from(trial_id, step or 0)

    @property
    def n_steps(self) -> float | None:
        """The median last step of the newest completed trials; None if unknown.

        Before a trial has completed, it is the pruner's `max_resource` if the study file sets it.
        """
        length = typical_length(self._storage, self.study_id)
        return self.scheduler.n_steps if length is None else length

    def again(self, trial_id: int) -> AskedTrial:
        """The same trial for one more attempt."""
        self.scheduler.end(trial_id, Ending.REQUEUED)
        return self._begin(self._live(trial_id), is_new=False)

    def suggest(self, trial_id: int, name: str, distribution: str) -> Json:
        """Suggests a parameter of a define-by-run objective.

        Raises:
            ValueError: If the distribution does not match earlier ones of the parameter.
        """
        parsed = json_to_distribution(distribution)
        value: Json = suggest(self._live(trial_id), name, parsed)
        return value

    def params_of(self, trial_id: int) -> dict[str, ParamValue]:
        """All parameters of a trial so far: declared, constant and define-by-run."""
        return all_params(self._storage.get_trial(trial_id), self._space)

    # -- reports -----------------------------------------------------------------------------

    def report(
        self, trial_id: int, step: int, values: Mapping[str, float], *, held_s: float | None = None
    ) -> Verdict:
        """Records the values of a step and returns the pruner's verdict.

        With several objectives Optuna's tables hold no curve, and a report that lacks one of them
        is not judged.

        Args:
            trial_id: The trial.
            step: Step of the report.
            values: Values of the objectives, by name.
            held_s: Seconds for which the attempt has held its devices, if known.
        """
        in_order = self._in_order(values)
        if in_order is None:
            return CONTINUE
        if len(in_order) > 1:
            self.steps.note(trial_id, step)
            self._curves.note(trial_id, step, in_order)
        elif step not in self._storage.get_trial(trial_id).intermediate_values:
            self._storage.set_trial_intermediate_value(trial_id, step, in_order[0])
        return self.scheduler.report(trial_id, step, in_order, held_s=held_s)

    def _in_order(self, values: Mapping[str, float]) -> list[float] | None:
        """The values of the objectives; None if the report does not have them."""
        if len(self.objectives) > 1 and values.keys() != set(self.objectives):
            return None
        in_order = [values[name] for name in self.objectives if name in values]
        return in_order or None

    def forget_curve_from(self, trial_id: int, step: int) -> None:
        """Drops the reports of an earlier attempt at `step` and later: they are repeated."""
        self._storage.drop_reports(trial_id, step)

    def set_attribute(self, trial_id: int, key: str, value: Json) -> None:
        self._storage.set_trial_user_attr(trial_id, key, value)

    def set_constraint(self, trial_id: int, key: str, value: float) -> None:
        self._live(trial_id).set_constraint(key, value)

    # -- endings -----------------------------------------------------------------------------

    def complete(self, trial_id: int, values: Mapping[str, float]) -> None:
        """Completes a trial with its values, one per objective, none NaN."""
        self.scheduler.end(trial_id, Ending.COMPLETED)
        self._tell(trial_id, TrialState.COMPLETE, [values[name] for name in self.objectives])
        self.incumbent.consider(self._storage.get_trial(trial_id))
        if not self.steps.is_cut_short(trial_id):
            self.scheduler.record_length(trial_id)

    def prune(self, trial_id: int) -> None:
        """Ends a pruned trial; its last report is its value, as in Optuna."""
        self.scheduler.end(trial_id, Ending.PRUNED)
        self._tell(trial_id, TrialState.PRUNED)

    def pause(self, trial_id: int) -> None:
        """Lets a trial wait at its rung; `resume` takes it up once it is among the best there."""
        self.steps.starts_over(trial_id)
        self._asked.pop(trial_id, None)
        self.scheduler.pause(trial_id)

    def stop_instead_of_pausing(self) -> bool:
        """Makes trials end at rungs instead of pausing; returns whether this is new."""
        return self.scheduler.stop_pausing()

    def end_paused(self) -> None:
        """The study is over: trials that are paused end as pruned, at their last step."""
        for number in sorted(self.scheduler.paused):
            if (trial_id := self.scheduler.take(number)) is not None:
                self.prune(trial_id)

    def fail(self, trial_id: int) -> None:
        """Ends a trial without a value."""
        self.scheduler.end(trial_id, Ending.FAILED)
        self._tell(trial_id, TrialState.FAIL)

    def mark_infeasible(self, trial_id: int, why: str) -> None:
        """Ends a trial whose configuration cannot work, so that the sampler avoids it.

        Samplers ignore failed trials. A pruned trial that breaks a constraint ranks behind all
        others for samplers that know constraints (`tpe`); the others ignore it.

        Args:
            trial_id: The trial.
            why: The reason, in a word.
        """
        self.scheduler.end(trial_id, Ending.FAILED)
        self._infeasible.mark(self._live(trial_id), why)
        self._tell(trial_id, TrialState.PRUNED)

    def put_back(self, trial_id: int) -> None:
        """Lets a trial wait, with its parameters, until a later attempt takes it up again."""
        self.scheduler.end(trial_id, Ending.REQUEUED)
        self._asked.pop(trial_id, None)
        self._storage.set_trial_state_values(trial_id, TrialState.WAITING)

    def unsaved(self) -> list[str]:
        """Ended trials whose end is not in the database yet, as text."""
        return [format_end(trial) for trial in self._storage.unwritten_ends()]

    # -- inside ------------------------------------------------------------------------------

    def _live(self, trial_id: int) -> optuna.Trial:
        if trial_id not in self._asked:
            self._asked[trial_id] = optuna.Trial(self.study, trial_id)
        return self._asked[trial_id]

    def _begin(self, trial: optuna.Trial, *, is_new: bool) -> AskedTrial:
        self.scheduler.begin(trial_id_of(trial))
        return AskedTrial(
            trial_id=trial_id_of(trial),
            number=trial.number,
            params=self._space.suggest(trial) if isinstance(self._space, SearchSpace) else {},
            is_new=is_new,
        )

    def _tell(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> None:
        self._asked.pop(trial_id, None)
        self.study.end(self._storage.get_trial_number_from_id(trial_id), state, values)
