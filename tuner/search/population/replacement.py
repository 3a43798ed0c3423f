"""Replacements of members: the parent, its checkpoint and the new parameters."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from optuna.trial import FrozenTrial

from tuner.checkpoints.hand_over import StateCopies
from tuner.domain.messages import Action
from tuner.search.population.pbt import PbtPruner
from tuner.search.population.perturbation import Exploration
from tuner.search.population.ranking import Mark
from tuner.search.scheduler import Verdict
from tuner.search_spaces import AnySpace, ParamValue, Scalar, SearchSpace
from tuner.store.optuna_tables.storage import BufferedStorage
from tuner.store.records.population_rows import Replacement


@dataclass(frozen=True, slots=True, kw_only=True)
class Doom:
    """The decision to end and replace a member."""

    replacement: Replacement
    verdict: Verdict


class Replacer:
    """Chooses replacements, and secures their checkpoints before they can be removed.

    Args:
        pruner: The rules.
        storage: Holds the study.
        study_id: Its id.
        space: The space of the study file.
    """

    def __init__(
        self,
        pruner: PbtPruner,
        storage: BufferedStorage,
        study_id: int,
        space: AnySpace | None,
    ) -> None:
        self._seed = pruner.seed
        self._storage = storage
        self._study_id = study_id
        self._space = space
        self._exploration = Exploration(
            resample=pruner.resample, factor=pruner.factor, keep=pruner.keep
        )
        #: Copies checkpoints; None if trials save none.
        self.copies: StateCopies | None = None
        #: Steps of a whole trial; a checkpoint at its end leaves nothing to train.
        self.length: int | None = None
        #: Messages to show.
        self._notes: list[str] = []
        self._has_told_of_states = False

    def find(self, weak: Mark, strong: Sequence[Mark], told: str) -> Doom | None:
        """Finds a replacement for a weak member.

        Args:
            weak: The member to replace.
            strong: Members that may be copied.
            told: How weak it is, as text for the user.

        Returns:
            None if no strong member has a usable checkpoint here.
        """
        lot = random.Random(f"{self._seed} {weak.number} {weak.step}")
        for mark in lot.sample(strong, len(strong)):
            step = self._take(mark.number, weak.number)
            if step is not None:
                return self._doom(mark.number, step, told, lot)
        if self.copies is None or not any(self.copies.has_state(each.number) for each in strong):
            self._tell_of_states(weak.number, told)
        return None

    def find_for_failed(self, number: int, good: Sequence[Sequence[Mark]]) -> Replacement:
        """Finds a replacement for a failed member.

        Args:
            number: The failed member's number.
            good: Members that may be copied, in groups, the better first.

        Returns:
            A copy, or a new configuration if no member has a usable checkpoint here.
        """
        lot = random.Random(f"{self._seed} {number} failed")
        for mark in (each for group in good for each in lot.sample(group, len(group))):
            if (step := self._take(mark.number, number)) is not None:
                copy, changes = self._copy(mark.number, step, lot)
                told = f"a copy of trial {mark.number} at step {step} takes its place{changes}"
                break
        else:
            copy = self._drawn(lot)
            told = (
                "a new configuration takes its place, because no member has a checkpoint that a "
                "copy could begin from"
            )
        self.tell(f"Trial {number} has failed for good: {told}.")
        return replace(copy, why=f"it failed for good: {told}")

    def tell(self, note: str) -> None:
        """Adds a message to show."""
        self._notes.append(note)

    def take_notes(self) -> list[str]:
        """Messages to show since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def _doom(self, number: int, step: int, told: str, lot: random.Random) -> Doom:
        copy, changes = self._copy(number, step, lot)
        reason = f"{told}: a copy of trial {number} at step {step} takes its place{changes}"
        return Doom(
            replacement=copy,
            verdict=Verdict(action=Action.PRUNE, reason=reason),
        )

    def _copy(self, number: int, step: int, lot: random.Random) -> tuple[Replacement, str]:
        """A copy of a trial with perturbed parameters, and their differences as text."""
        storage = self._storage
        trial_id = storage.get_trial_id_from_study_id_trial_number(self._study_id, number)
        parent = storage.get_trial(trial_id)
        params = self._explored(parent, lot)
        changes = changes_text(parent.params, params) or "the same parameters"
        copy = Replacement(parent=number, step=step, params=params, host=socket.gethostname())
        return copy, f", with {changes}"

    def _drawn(self, lot: random.Random) -> Replacement:
        """A new configuration; parameters that the program suggests are drawn by the sampler."""
        params: Mapping[str, Scalar] = {}
        if isinstance(self._space, SearchSpace):
            params = self._exploration.of_space(self._space, {}, lot)
        return Replacement(parent=None, step=0, params=params, host=socket.gethostname())

    def _take(self, parent: int, replaced: int) -> int | None:
        """Secures a checkpoint; returns its step, None if there is none with steps left."""
        if self.copies is None:
            return None
        step = self.copies.take(parent, replaced)
        is_of_use = step is not None and step > 0 and (self.length is None or step < self.length)
        if not is_of_use:
            self.copies.drop(replaced)
        return step if is_of_use else None

    def _explored(self, parent: FrozenTrial, lot: random.Random) -> dict[str, Scalar]:
        if isinstance(self._space, SearchSpace):
            return self._exploration.of_space(self._space, parent.params, lot)
        return self._exploration.of_distributions(parent.distributions, parent.params, lot)

    def _tell_of_states(self, number: int, told: str) -> None:
        if not self._has_told_of_states:
            self._has_told_of_states = True
            self.tell(
                f"Trial {number}, {told}, was not replaced: no top trial has a checkpoint on this "
                "host. pbt needs trial.save_checkpoint(state, step) "
                "before trial.should_prune(), trial.load_checkpoint() at the start, and one folder "
                "for all machines of a study."
            )


def changes_text(before: Mapping[str, ParamValue], after: Mapping[str, ParamValue]) -> str:
    """`lr 0.0003 -> 0.00036`"""
    changed = {
        name: value for name, value in after.items() if name not in before or before[name] != value
    }
    return ", ".join(
        f"{name} {f'{_shown(before[name])} -> ' if name in before else ''}{_shown(value)}"
        for name, value in changed.items()
    )


def _shown(value: ParamValue) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
