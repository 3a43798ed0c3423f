"""The study as the dispatcher sees it: ask for a trial, judge a report, tell how it ended.

A thin layer over `optuna.Study`, so that samplers, pruners and other tools see what they know.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import datetime
from functools import partial

import optuna
from optuna.distributions import json_to_distribution
from optuna.pruners import BasePruner, NopPruner
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from search_spaces import AnySpace, ParamValue, SearchSpace
from tuner.budget import N_TYPICAL
from tuner.checkpoints.hand_over import StateCopies
from tuner.checkpoints.paths import StudyFiles
from tuner.checkpoints.trial_folders import StudyKey, TrialKey, belongs_to
from tuner.config import Direction
from tuner.messages import Action, Json
from tuner.search.asked_trial import AskedTrial
from tuner.search.decision import Decision
from tuner.search.incumbent import BestTrial, Incumbent
from tuner.search.last_report import LAST_REPORT_KEY, LastReport
from tuner.search.optuna_study import TunedStudy
from tuner.search.population.pbt import PbtPruner
from tuner.search.population.population import Population
from tuner.search.progress import ProgressMarks
from tuner.search.pruners.asha import AshaPruner
from tuner.search.pruners.freeze_thaw import FreezeThawPruner
from tuner.search.pruners.hyperband import AsyncHyperbandPruner
from tuner.search.pruners.optuna_pruning import Pruning
from tuner.search.pruners.step_checks import StepCounts
from tuner.search.rungs.promotion import Promotion
from tuner.search.samplers.grid_points import FIXED_ATTR
from tuner.search.samplers.out_of_process import OutOfProcessSampler
from tuner.search.samplers.prior import PriorSampler
from tuner.search.samplers.resumable import GridSampler
from tuner.search.study_identity import (
    IDENTITY_ATTR,
    all_params,
    key_of,
    open_study,
    to_optuna,
)
from tuner.store.connection.transactions import Unavailable
from tuner.store.optuna_tables.storage import BufferedStorage
from tuner.store.records.ownership import NoTrialLeft
from tuner.store.records.population_rows import COPY_KEY, POPULATION_IS_OVER

#: Constraints of ours; a program may have others, under names of its own.
_INFEASIBLE = "tuner:"
#: With a trial that had nothing left to do, and was started again without its checkpoint.
_STARTED_OVER_KEY = "tuner:started_over"


class StudySearch:
    """One study with its space, sampler and pruner, over the dispatcher's storage.

    Args:
        storage: Holds the study in memory.
        name: Of the study; it is made if it is not there.
        objectives: Names and directions, in order.
        space: What the study file declares.
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
        self._pruning: Pruning | None = None
        if not isinstance(pruner, NopPruner) and len(objectives) == 1:
            self._pruning = Pruning(self.study, storage, pruner, self.objectives[0])
        self._asked: dict[int, optuna.Trial] = {}
        self._incumbent = Incumbent(self.study, self.objectives, self.params_of)
        self._promotion: Promotion | Population | None = None
        self._has_slices = isinstance(pruner, FreezeThawPruner)
        if isinstance(pruner, FreezeThawPruner):
            pruner.load_model()
        if isinstance(sampler, GridSampler):
            self.study.begin = self._begin_point
        if isinstance(pruner, PbtPruner):
            self._promotion = Population(pruner, storage, study_id, directions[0], space)
            self.study.begin = self._promotion.succession.begin
        elif isinstance(pruner, AshaPruner | AsyncHyperbandPruner | FreezeThawPruner) and (
            pruner.promotes or len(objectives) > 1
        ):
            self._promotion = Promotion(pruner, storage, study_id, directions)
        if self._promotion is not None:
            self.study.paused = lambda: self._paused
        #: Where trials turned out to save no checkpoints: they end where others would pause.
        self._stops_instead = False
        #: What programs make of their steps.
        self.steps = StepCounts(storage, pruner)
        self.progress = ProgressMarks(storage)
        self._infeasible: set[int] = set()
        pruned = storage.get_all_trials(study_id, deepcopy=False, states=(TrialState.PRUNED,))
        for trial in pruned:
            self._note_infeasible(trial)

    def write_copy(self, storage: BufferedStorage) -> None:
        """Writes the study and its trials, as they are in memory, into another database.

        Raises:
            StoreError: If that cannot be written.
        """
        directions = list(self.study.directions)
        name = self.study.study_name
        study_id = open_study(storage, name, directions, self.objectives, self._space)
        for trial in self._storage.get_all_trials(self.study_id):
            if trial.state is TrialState.RUNNING:
                trial.state = TrialState.WAITING
            storage.create_new_trial(study_id, template_trial=trial)
        storage.flush()

    # -- counting ----------------------------------------------------------------------------

    def count(self) -> Counter[TrialState]:
        """Trials of the study by state; those that are paused are not among those that wait."""
        counts = Counter(self._storage.count_trials(self.study_id))
        counts[TrialState.WAITING] -= self.n_paused
        return counts

    @property
    def n_paused(self) -> int:
        """Trials that stand at a rung until it is their turn."""
        return len(self._paused)

    @property
    def n_waiting(self) -> int:
        """Trials that wait for a device, here or elsewhere."""
        return self.count()[TrialState.WAITING]

    @property
    def has_waiting(self) -> bool:
        """Whether a trial waits for a device that can run here."""
        return self.study.has_waiting

    def take_only(self, fits: Callable[[Mapping[str, ParamValue]], bool]) -> None:
        """From now on trials that wait are left to other dispatchers where they do not fit here.

        Args:
            fits: Whether a trial with such parameters fits; some may not be known yet.
        """
        self.study.may_take = lambda trial: fits(self._known_params(trial))

    def left_to_others(self) -> Mapping[int, Mapping[str, ParamValue]]:
        """Parameters of the trials that wait and do not fit here, by number."""
        return {trial.number: self._known_params(trial) for trial in self.study.waiting_elsewhere()}

    @property
    def n_begun(self) -> int:
        """Trials that ever had a device and have not been put back."""
        counts = self._storage.count_trials(self.study_id)
        return sum(counts.values()) - counts[TrialState.WAITING] + self.n_paused

    @property
    def limit(self) -> int | None:
        """How many trials the sampler has to offer; None for no end."""
        sampler = self.study.sampler
        return sampler.n_points if isinstance(sampler, GridSampler) else None

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left that is not tried or being tried."""
        if (population := self._population) is not None:
            return population.is_over
        sampler = self.study.sampler
        if isinstance(sampler, GridSampler):
            return not self.n_waiting and not sampler.has_point_left(self.study)
        return self.study.is_exhausted

    @property
    def why_exhausted(self) -> str:
        """For people."""
        if self._population is not None:
            return POPULATION_IS_OVER
        return "every configuration of the space was tried"

    @property
    def best(self) -> BestTrial | None:
        """The best completed trial; with several objectives the newest on the Pareto front."""
        return self._incumbent.best

    def sync(self) -> None:
        """Takes in what other dispatchers, and other programs of Optuna, did to the study."""
        for trial in self._storage.refresh(self.study_id):
            if trial.state is TrialState.COMPLETE:
                self._incumbent.consider(trial)
            self._note_infeasible(trial)
            if self._promotion is not None:
                self._promotion.take_in(trial)

    # -- asking ------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether `ask` answers at once; if not, its suggestion is in the making from now on."""
        sampler = self.study.sampler
        population = self._population
        if self.study.has_waiting or (population is not None and not population.lacks_members):
            return True
        if isinstance(sampler, PriorSampler):
            if sampler.is_next(self.study):
                return True
            sampler = sampler.inner
        return not isinstance(sampler, OutOfProcessSampler) or sampler.is_ready(self.study)

    @property
    def suggestion_s(self) -> float:
        """How long the newest suggestion was in the making while others could work."""
        sampler = self.study.sampler
        if isinstance(sampler, PriorSampler):
            sampler = sampler.inner
        return sampler.took_s if isinstance(sampler, OutOfProcessSampler) else 0.0

    def ask(self) -> AskedTrial | None:
        """The next trial: one that waits (enqueued, cancelled, lost), else a new one.

        None where other dispatchers have begun as many as the study may have.
        """
        n_known = self._storage.n_known(self.study_id)
        try:
            trial = self.study.ask()
        except NoTrialLeft:
            self.sync()
            return None
        if self._population is not None:
            self._population.adopt(self._storage.get_trial(trial._trial_id))
        self._asked[trial._trial_id] = trial
        return self._as_asked(trial, is_new=trial.number >= n_known)

    def resume(self, *, is_last: bool = False, is_closing: bool = False) -> AskedTrial | None:
        """A paused trial whose turn it is; None where there is none.

        Args:
            is_last: Nothing else will happen: where nobody has earned to go on, and no trial of
                the study has completed, the best of the highest rung does.
            is_closing: No new trial will start: where nobody has earned to go on, the best of the
                highest rung does.
        """
        if self._promotion is None or self._stops_instead:
            return None
        is_last = is_closing or (is_last and self.lacks_a_winner)
        trial_id = self._promotion.resume(is_last=is_last)
        while trial_id is not None and not is_last and self._gives_up(trial_id):
            self.prune(trial_id)
            trial_id = self._promotion.resume(is_last=is_last)
        if trial_id is None:
            return None
        self.steps.resumed(trial_id)
        number = self._storage.get_trial_number_from_id(trial_id)
        self._note_begin(number)
        return AskedTrial(
            trial_id=trial_id,
            number=number,
            params=self.params_of(trial_id),
            is_new=False,
        )

    @property
    def share_left_of_leader(self) -> float | None:
        """What the best paused trial of the highest rung has to train yet, of a whole training.

        None where nobody is paused, or where it is not known how long trainings are.
        """
        if self._promotion is None or self._stops_instead:
            return None
        return self._promotion.share_left_of_leader

    @property
    def lacks_a_winner(self) -> bool:
        """Whether trials are paused, while none runs and none has completed.

        A population wants all of them.
        """
        if self._stops_instead or not self._paused:
            return False
        if self._population is not None:
            return True
        counts = self.count()
        return not counts[TrialState.RUNNING] and not counts[TrialState.COMPLETE]

    @property
    def has_population(self) -> bool:
        """Whether weak trials are replaced by copies of others."""
        return self._population is not None

    def copy_states(
        self, files: StudyFiles, begun_at: Callable[[int, int], datetime | None] | None = None
    ) -> None:
        """From now on a population may copy the checkpoints of its trials.

        Args:
            files: Where they are.
            begun_at: When the first attempt of a trial, by number and id, got its devices; None
                where folders hold no identity files.
        """
        if self._population is None:
            return
        if begun_at is None:
            self._population.set_copies(StateCopies(files))
            return
        is_own = partial(self._is_own_folder, files, begun_at)
        self._population.set_copies(StateCopies(files, is_own))

    def _is_own_folder(
        self,
        files: StudyFiles,
        begun_at: Callable[[int, int], datetime | None],
        number: int,
    ) -> bool:
        try:
            trial_id = self._storage.get_trial_id_from_study_id_trial_number(self.study_id, number)
            key = TrialKey(
                study=self.key,
                number=number,
                begun_at=begun_at(number, trial_id),
                params=self._storage.get_trial(trial_id).params,
            )
            return belongs_to(files.trial(number), key)
        except (OSError, Unavailable):
            return False  # What is not known as its own is left alone.

    def hand_over(self, trial_id: int) -> str:
        """Before an attempt: a copy gets its parent's checkpoint. Gives what people should know."""
        if self._population is None:
            return ""
        return self._population.succession.hand_over(self._storage.get_trial(trial_id))

    def is_copy(self, trial_id: int) -> bool:
        """Whether a trial goes on from the checkpoint of another one."""
        return COPY_KEY in self._storage.get_trial(trial_id).system_attrs

    def resumes_from(self, trial_id: int, step: int | None) -> None:
        """A trial goes on from an older state than its newest, or from none.

        Args:
            trial_id: Which.
            step: Of that state; None where it starts from the beginning.
        """
        if step is None:
            self.steps.starts_over(trial_id)
        if self._population is not None:
            trial = self._storage.get_trial(trial_id)
            self._population.succession.resumes_from(trial, step or 0)

    def take_notes(self) -> list[str]:
        """What people should know of the population since the last call."""
        return self._population.take_notes() if self._population is not None else []

    def copy_counts_anew(self, trial_id: int, step: int) -> bool:
        """Whether a copy's attempt does not go on from its parent's step, as its first one tells.

        Nobody is replaced any more then.
        """
        population = self._population
        return population is not None and population.succession.counts_anew(
            self._storage.get_trial(trial_id), step
        )

    @property
    def n_steps(self) -> float | None:
        """The last step of a trial, in the median of the newest that completed; None if unknown.

        Before one has completed it is the pruner's `max_resource`, where the study file has it.
        """
        completed = self._storage.get_all_trials(
            self.study_id, deepcopy=False, states=(TrialState.COMPLETE,)
        )
        curves = [each.intermediate_values for each in completed[-N_TYPICAL:]]
        if lasts := [max(curve) for curve in curves if curve]:
            return statistics.median(lasts)
        promotion = self._promotion
        return promotion.brackets.length if isinstance(promotion, Promotion) else None

    def again(self, trial_id: int) -> AskedTrial:
        """The same trial for one more attempt."""
        self._forget_doom(trial_id)
        return self._as_asked(self._live(trial_id), is_new=False)

    def suggest(self, trial_id: int, name: str, distribution: str) -> Json:
        """A parameter of a define-by-run objective.

        Raises:
            ValueError: If the distribution does not fit what the study knows of the parameter.
        """
        parsed = json_to_distribution(distribution)
        value: Json = self._live(trial_id)._suggest(name, parsed)
        return value

    def params_of(self, trial_id: int) -> dict[str, ParamValue]:
        """All parameters of a trial so far: declared, constant and define-by-run."""
        return all_params(self._storage.get_trial(trial_id), self._space)

    # -- reports -----------------------------------------------------------------------------

    def report(
        self, trial_id: int, step: int, values: Mapping[str, float], *, held_s: float | None = None
    ) -> Decision:
        """Takes the value of a step and asks the pruner.

        With several objectives Optuna's tables have no curve, and a report that lacks one of them
        is not judged.

        Args:
            trial_id: Whose report it is.
            step: Of the report.
            values: Of the objectives, by name.
            held_s: For how long the trial's attempt has its devices, where that is known.
        """
        if len(self.objectives) > 1:
            return self._judge_several(trial_id, step, values)
        value = values.get(self.objectives[0])
        if value is None:
            return Decision(action=Action.CONTINUE)
        if step not in self._storage.get_trial(trial_id).intermediate_values:
            self._storage.set_trial_intermediate_value(trial_id, step, value)
        if self._pruning is None:
            return Decision(action=Action.CONTINUE)
        if self._promotion is not None and (self._has_slices or not self._stops_instead):
            trial = self._storage.get_trial(trial_id)
            if isinstance(self._promotion, Promotion) and self._has_slices and held_s is not None:
                self._promotion.heard(trial, step, held_s)
            return self._promotion.decide(trial, step, [value], self.objectives)
        return self._pruning.decide(trial_id)

    def _judge_several(self, trial_id: int, step: int, values: Mapping[str, float]) -> Decision:
        if self._promotion is None or values.keys() != set(self.objectives):
            return Decision(action=Action.CONTINUE)
        self.steps.heard(trial_id, step)
        in_order = [values[name] for name in self.objectives]
        trial = self._storage.get_trial(trial_id)
        return self._promotion.decide(trial, step, in_order, self.objectives)

    def read_ahead(self) -> bool:
        """Reads some of the curves that the pruner is going to look at; says whether of more."""
        return self._pruning is not None and self._pruning.read_ahead()

    def forget_curve_from(self, trial_id: int, step: int) -> None:
        """Drops what an earlier attempt reported at `step` and later: it is reported again."""
        self._storage.drop_reports(trial_id, step)

    def set_attribute(self, trial_id: int, key: str, value: Json) -> None:
        self._storage.set_trial_user_attr(trial_id, key, value)

    def set_constraint(self, trial_id: int, key: str, value: float) -> None:
        self._live(trial_id).set_constraint(key, value)

    # -- endings -----------------------------------------------------------------------------

    def complete(self, trial_id: int, values: Mapping[str, float]) -> None:
        """Ends a trial with its values, one for each objective, none NaN."""
        if self._promotion is not None:
            self._promotion.completes(self._storage.get_trial(trial_id))
        self._tell(trial_id, TrialState.COMPLETE, [values[name] for name in self.objectives])
        trial = self._storage.get_trial(trial_id)
        self._incumbent.consider(trial)
        if self._promotion is not None and not self.steps.is_cut_short(trial_id):
            self._promotion.note_length(trial)

    def prune(self, trial_id: int) -> None:
        """Ends a trial that was given up; its last report is its value, as in Optuna."""
        if self._population is not None:
            self._population.ends(self._storage.get_trial(trial_id), is_pruned=True)
        self._tell(trial_id, TrialState.PRUNED)

    def pause(self, trial_id: int) -> None:
        """Lets a trial wait at its rung; `resume` takes it up once it is among the best there."""
        assert self._promotion is not None
        self.steps.starts_over(trial_id)
        self._asked.pop(trial_id, None)
        self._promotion.pause(self._storage.get_trial(trial_id))

    def stop_instead_of_pausing(self) -> bool:
        """From now on trials end at the rungs; says whether that is new."""
        if (population := self._population) is not None:
            is_new = not population.has_stopped
            population.stop_from_now()
            return is_new
        is_new, self._stops_instead = not self._stops_instead, True
        if self._promotion is not None:
            self._promotion.stop_from_now()
        return is_new

    def end_paused(self) -> None:
        """The study is over: trials that are paused end as pruned, at their last step."""
        if self._promotion is None:
            return
        for number in sorted(self._promotion.paused):
            if (trial_id := self._promotion.take(number)) is not None:
                self.prune(trial_id)

    def fail(self, trial_id: int) -> None:
        """Ends a trial without a value."""
        self._replace_failed(trial_id)
        self._tell(trial_id, TrialState.FAIL)

    def mark_infeasible(self, trial_id: int, why: str) -> None:
        """Ends a trial whose configuration cannot work, so that the sampler stays away from it.

        Samplers don't look at trials that failed. One that was pruned and breaks a constraint is
        worse than all others to those that know constraints (`tpe`); the others leave it out.

        Args:
            trial_id: Which.
            why: In a word.
        """
        self._replace_failed(trial_id)
        self._live(trial_id).set_constraint(f"{_INFEASIBLE}{why}", 1.0)
        self._tell(trial_id, TrialState.PRUNED)
        self._infeasible.add(trial_id)

    @property
    def n_infeasible(self) -> int:
        """Trials that are marked so; Optuna counts them as pruned."""
        return len(self._infeasible)

    @property
    def has_ended_well(self) -> bool:
        """Whether any trial has completed, or was pruned for its values."""
        counts = self.count()
        return counts[TrialState.COMPLETE] + counts[TrialState.PRUNED] > self.n_infeasible

    def put_back(self, trial_id: int) -> None:
        """Lets a trial wait, with its parameters, until a later attempt takes it up again."""
        self._forget_doom(trial_id)
        self._asked.pop(trial_id, None)
        self._storage.set_trial_state_values(trial_id, TrialState.WAITING)

    def unsaved(self) -> list[str]:
        """For people: trials that have ended and that the database does not know of as ended."""
        return [_shown_end(trial) for trial in self._storage.unwritten_ends()]

    # -- last reports ------------------------------------------------------------------------

    def note_last_report(self, trial_id: int, last: LastReport) -> None:
        """Keeps with a trial what it reported last, before it waits for another attempt."""
        self._storage.set_trial_system_attr(trial_id, LAST_REPORT_KEY, last.as_json())

    def last_report(self, trial_id: int) -> LastReport | None:
        """The last report of the newest attempt that reported and whose end was seen."""
        return LastReport.of(self._storage.get_trial(trial_id).system_attrs)

    def start_over_once(self, trial_id: int) -> bool:
        """Notes that a trial starts without its checkpoint; says whether it may.

        Only once. Never a copy, which begins from the checkpoint of another trial.
        """
        attributes = self._storage.get_trial(trial_id).system_attrs
        if _STARTED_OVER_KEY in attributes or COPY_KEY in attributes:
            return False
        self._storage.set_trial_system_attr(trial_id, _STARTED_OVER_KEY, True)
        self.steps.starts_over(trial_id)
        return True

    # -- inside ------------------------------------------------------------------------------

    @property
    def _population(self) -> Population | None:
        return self._promotion if isinstance(self._promotion, Population) else None

    def _forget_doom(self, trial_id: int) -> None:
        """A member that was told to end, and does not, or otherwise."""
        if self._population is not None:
            self._population.ends(self._storage.get_trial(trial_id), is_pruned=False)

    def _replace_failed(self, trial_id: int) -> None:
        if self._population is not None:
            self._population.fails(self._storage.get_trial(trial_id))

    def _gives_up(self, trial_id: int) -> bool:
        """Whether a member that was paused, and is to go on, is among the weak meanwhile."""
        trial = self._storage.get_trial(trial_id)
        return self._population is not None and self._population.gives_up(trial, self.objectives[0])

    @property
    def _paused(self) -> Set[int]:
        return self._promotion.paused if self._promotion is not None else frozenset()

    def _note_infeasible(self, trial: FrozenTrial) -> None:
        if trial.system_attrs and any(key.startswith(_INFEASIBLE) for key in trial.constraints):
            self._infeasible.add(trial._trial_id)

    def _known_params(self, trial: FrozenTrial) -> dict[str, ParamValue]:
        """Also those that it was told to try and has not asked for yet."""
        fixed: dict[str, ParamValue] = trial.system_attrs.get(FIXED_ATTR, {})
        return fixed | all_params(trial, self._space)

    def _begin_point(self) -> int | None:
        sampler = self.study.sampler
        assert isinstance(sampler, GridSampler), "a study's sampler stays of its kind"
        return sampler.begin(self.study, self._storage)

    def _live(self, trial_id: int) -> optuna.Trial:
        if trial_id not in self._asked:
            self._asked[trial_id] = optuna.Trial(self.study, trial_id)
        return self._asked[trial_id]

    def _note_begin(self, number: int) -> None:
        if isinstance(self._promotion, Promotion):
            self._promotion.begins(number)

    def _as_asked(self, trial: optuna.Trial, *, is_new: bool) -> AskedTrial:
        self._note_begin(trial.number)
        return AskedTrial(
            trial_id=trial._trial_id,
            number=trial.number,
            params=self._params(trial),
            is_new=is_new,
        )

    def _params(self, trial: optuna.Trial) -> dict[str, ParamValue]:
        if isinstance(self._space, SearchSpace):
            return self._space.suggest(trial)
        return {}

    def _tell(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> None:
        self._asked.pop(trial_id, None)
        self.study.end(self._storage.get_trial_number_from_id(trial_id), state, values)


def _shown_end(trial: FrozenTrial) -> str:
    """`trial 3 (0.97)`, or `trial 4 (pruned)`."""
    if trial.state is TrialState.COMPLETE:
        return f"trial {trial.number} ({', '.join(f'{value:.6g}' for value in trial.values)})"
    return f"trial {trial.number} ({'pruned' if trial.state is TrialState.PRUNED else 'failed'})"
