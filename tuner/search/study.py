"""The study as the dispatcher sees it: ask for a trial, judge a report, tell how it ended.

A thin layer over `optuna.Study`, so that samplers, pruners and other tools see what they know.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import optuna
from optuna.distributions import json_to_distribution
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler, GridSampler
from optuna.trial import FrozenTrial, TrialState

from search_spaces import AnySpace, ParamValue, SearchSpace
from tuner.config import Direction
from tuner.messages import Action, Json
from tuner.search.identity import all_params, open_study, to_optuna
from tuner.search.incumbent import BestTrial, Incumbent
from tuner.search.reasons import why_pruned
from tuner.search.step_ranks import RankedPruner, quicker
from tuner.store.access import Unavailable
from tuner.store.buffered_storage import BufferedStorage
from tuner.store.curves import BATCH_SIZE, read_ahead
from tuner.store.ownership import NoTrialLeft

#: Constraints of ours; a program may have others, under names of its own.
_INFEASIBLE = "tuner:"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTrial:
    """A trial to evaluate now; `params` are what the study file declares, constants included."""

    trial_id: int
    number: int
    params: Mapping[str, ParamValue]
    #: Whether no attempt of it was ever made.
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What shall become of a trial after a report, and why."""

    action: Action
    reason: str = ""


class TunedStudy(optuna.Study):
    """An Optuna study whose sampler may say, outside of `optimize`, that nothing is left to try."""

    is_exhausted = False

    def stop(self) -> None:
        self.is_exhausted = True

    def _pop_waiting_trial_id(self) -> int | None:
        # Optuna looks at every trial for one that waits, though mostly none does.
        assert isinstance(self._storage, BufferedStorage)
        if not self._storage.count_trials(self._study_id)[TrialState.WAITING]:
            return None
        return super()._pop_waiting_trial_id()


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
        self._pruner = quicker(pruner)
        self._n_read_ahead = 0
        self._prunes = not isinstance(pruner, optuna.pruners.NopPruner) and len(objectives) == 1
        self._asked: dict[int, optuna.Trial] = {}
        self._incumbent = Incumbent(self.study, self.objectives, self.params_of)
        self._infeasible: set[int] = set()
        pruned = storage.get_all_trials(study_id, deepcopy=False, states=(TrialState.PRUNED,))
        for trial in pruned:
            self._note_infeasible(trial)

    # -- counting ----------------------------------------------------------------------------

    def count(self) -> Counter[TrialState]:
        """Trials of the study by state."""
        return self._storage.count_trials(self.study_id)

    @property
    def limit(self) -> int | None:
        """How many trials the sampler has to offer; None for no end."""
        sampler = self.study.sampler
        return len(sampler._all_grids) if isinstance(sampler, GridSampler) else None

    @property
    def is_exhausted(self) -> bool:
        """Whether the sampler has nothing left that is not tried or being tried."""
        return self.study.is_exhausted or self._is_grid_begun()

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

    # -- asking ------------------------------------------------------------------------------

    def ask(self) -> AskedTrial | None:
        """The next trial: one that waits (enqueued, cancelled, lost), else a new one.

        None where other dispatchers have begun as many as the study may have.
        """
        n_known = sum(self.count().values())
        try:
            trial = self.study.ask()
        except NoTrialLeft:
            self.sync()
            return None
        self._asked[trial._trial_id] = trial
        return self._as_asked(trial, is_new=trial.number >= n_known)

    def again(self, trial_id: int) -> AskedTrial:
        """The same trial for one more attempt."""
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

    def report(self, trial_id: int, step: int, values: Mapping[str, float]) -> Decision:
        """Takes the value of a step and asks the pruner. With several objectives none prunes."""
        if len(self.objectives) > 1:
            return Decision(action=Action.CONTINUE)
        value = values.get(self.objectives[0])
        if value is None:
            return Decision(action=Action.CONTINUE)
        if step not in self._storage.get_trial(trial_id).intermediate_values:
            self._storage.set_trial_intermediate_value(trial_id, step, value)
        if not self._prunes:
            return Decision(action=Action.CONTINUE)
        if not self._gives_up(self._storage.get_trial(trial_id)):
            return Decision(action=Action.CONTINUE)
        trial = self._storage.get_trial(trial_id)
        reason = why_pruned(self.study, self._pruner, trial, self.objectives[0])
        return Decision(action=Action.PRUNE, reason=reason)

    def read_ahead(self) -> bool:
        """Reads some of the curves that the pruner is going to look at.

        Returns:
            Whether there may be more of them.
        """
        if not isinstance(self._pruner, RankedPruner):
            return False
        completed = self._storage.completed(self.study_id)
        some = completed[self._n_read_ahead : self._n_read_ahead + BATCH_SIZE]
        try:
            read_ahead([trial.intermediate_values for trial in some])
        except Unavailable:
            return False  # The next call finds out whether it is there again.
        self._n_read_ahead += len(some)
        return bool(some)

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
        self._tell(trial_id, TrialState.COMPLETE, [values[name] for name in self.objectives])
        self._incumbent.consider(self._storage.get_trial(trial_id))

    def prune(self, trial_id: int) -> None:
        """Ends a trial that was given up; its last report is its value, as in Optuna."""
        self._tell(trial_id, TrialState.PRUNED)

    def fail(self, trial_id: int) -> None:
        """Ends a trial without a value."""
        self._tell(trial_id, TrialState.FAIL)

    def mark_infeasible(self, trial_id: int, why: str) -> None:
        """Ends a trial whose configuration cannot work, so that the sampler stays away from it.

        Samplers don't look at trials that failed. One that was pruned and breaks a constraint is
        worse than all others to those that know constraints (`tpe`); the others leave it out.

        Args:
            trial_id: Which.
            why: In a word.
        """
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
        self._asked.pop(trial_id, None)
        self._storage.set_trial_state_values(trial_id, TrialState.WAITING)

    def unsaved(self) -> list[str]:
        """For people: trials that have ended and that the database does not know of as ended."""
        return [_shown_end(trial) for trial in self._storage.unwritten_ends()]

    # -- inside ------------------------------------------------------------------------------

    def _note_infeasible(self, trial: FrozenTrial) -> None:
        if trial.system_attrs and any(key.startswith(_INFEASIBLE) for key in trial.constraints):
            self._infeasible.add(trial._trial_id)

    def _gives_up(self, trial: FrozenTrial) -> bool:
        if isinstance(self._pruner, RankedPruner):
            return self._pruner.prune(self.study, trial)
        with warnings.catch_warnings():
            # NumPy's, about a curve that is all NaN; the pruner prunes it.
            warnings.simplefilter("ignore", RuntimeWarning)
            return self._pruner.prune(self.study, trial)

    def _is_grid_begun(self) -> bool:
        # Optuna says so once the last point has ended, and repeats those that run until then.
        if self.limit is None or sum(self.count().values()) < self.limit:
            return False
        begun = [t for t in self._trials() if t.state is not TrialState.WAITING]
        return len({t.system_attrs.get("grid_id") for t in begun} - {None}) >= self.limit

    def _trials(self) -> list[FrozenTrial]:
        return self._storage.get_all_trials(self.study_id, deepcopy=False)

    def _live(self, trial_id: int) -> optuna.Trial:
        if trial_id not in self._asked:
            self._asked[trial_id] = optuna.Trial(self.study, trial_id)
        return self._asked[trial_id]

    def _as_asked(self, trial: optuna.Trial, *, is_new: bool) -> AskedTrial:
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
        self.study.tell(self._storage.get_trial_number_from_id(trial_id), values, state)


def _shown_end(trial: FrozenTrial) -> str:
    """`trial 3 (0.97)`, or `trial 4 (pruned)`."""
    if trial.state is TrialState.COMPLETE:
        return f"trial {trial.number} ({', '.join(f'{value:.6g}' for value in trial.values)})"
    return f"trial {trial.number} ({'pruned' if trial.state is TrialState.PRUNED else 'failed'})"
