"""Chooses the next member of a population: a new one, or a replacement.

A replacement is a trial of its own, because the parameters of an Optuna trial never change. It has
the parameters of an enqueued trial, and a copy continues from its parent's checkpoint.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import sqlalchemy as sa
from optuna.trial import FrozenTrial

from tuner.checkpoints.hand_over import StateCopies
from tuner.search.population.members import Members
from tuner.store.optuna_compat import trial_id_of
from tuner.store.optuna_tables.storage import BufferedStorage, MayBegin
from tuner.store.records.population_rows import (
    COPY_KEY,
    FIXED_KEY,
    MEMBER_KEY,
    Origin,
    count_members,
    is_replaced,
)


class Succession:
    """Starts members. Each replacement starts once, even with several dispatchers.

    Args:
        members: The population's members.
        storage: Holds the study.
        study_id: Its id.
        n_most: Number of members that are drawn.
    """

    def __init__(
        self, members: Members, storage: BufferedStorage, study_id: int, n_most: int
    ) -> None:
        self._members = members
        self._storage = storage
        self._study_id = study_id
        self._n_most = n_most
        #: Copies checkpoints; None if trials save none.
        self.copies: StateCopies | None = None

    @property
    def has_next(self) -> bool:
        """Whether a member can start here."""
        return self._members.n_missing > 0 or next(self._to_begin(), None) is not None

    def has_before(self, step: int) -> bool:
        """Whether a member can start here that is behind a step."""
        if self._members.n_missing:
            return True
        return any(self._members.open[number].step < step for number in self._to_begin())

    def begin(self) -> int | None:
        """Starts the next member on this dispatcher; returns its id, or None if there is none.

        Raises:
            NoTrialLeft: If the study may have no further trial.
        """
        if self._members.n_missing:
            may_begin = partial(_may_draw, study_id=self._study_id, n_most=self._n_most)
            return self._begun({MEMBER_KEY: True}, may_begin)
        for number in list(self._to_begin()):
            wanted = self._members.open[number]
            origin = Origin(parent=wanted.parent, step=wanted.step, replaces=number)
            attributes = {COPY_KEY: origin.as_json(), FIXED_KEY: dict(wanted.params)}
            may_begin = partial(_may_replace, study_id=self._study_id, number=number)
            trial_id = self._begun(attributes, may_begin)
            # Else another dispatcher was quicker, and the next look shows what it began.
            self._members.note_replaced(number)
            if trial_id is not None:
                return trial_id
        return None

    def hand_over(self, trial: FrozenTrial) -> str:
        """Moves a copy's checkpoint into its place, before its attempt.

        Returns:
            A message; empty if it is in place, or the trial is no copy.
        """
        origin = Origin.of(trial.system_attrs)
        if origin is None or not origin.step or self.copies is None:
            return ""
        step = self.copies.give(origin.replaces, trial.number)
        if step is not None:
            if step < origin.step:
                # What the store had acknowledged when the parent was chosen.
                self._note(trial, replace(origin, step=step))
            return ""
        self._note(trial, replace(origin, step=0))
        return (
            f"Trial {trial.number} starts from the beginning: the checkpoint of trial "
            f"{origin.parent} at step {origin.step}, from which it was to continue, is not here."
        )

    def counts_anew(self, trial: FrozenTrial, step: int) -> bool:
        """Whether the first step that a copy reports lies before the step of its checkpoint."""
        origin = Origin.of(trial.system_attrs)
        if origin is None or step >= origin.step:
            return False
        self._note(trial, replace(origin, is_sure=False))
        return True

    def resumes_from(self, trial: FrozenTrial, step: int) -> None:
        """Records that a trial continues from this step; a copy's may be before its parent's."""
        origin = Origin.of(trial.system_attrs)
        if origin is not None and step < origin.step:
            self._note(trial, replace(origin, step=step))

    def _note(self, trial: FrozenTrial, origin: Origin) -> None:
        self._storage.set_trial_system_attr(trial_id_of(trial), COPY_KEY, origin.as_json())

    def _begun(self, attributes: Mapping[str, object], may_begin: MayBegin) -> int | None:
        trial_id = self._storage.begin_trial(self._study_id, attributes, may_begin)
        if trial_id is not None:
            self._members.take_in(self._storage.get_trial(trial_id))
        return trial_id

    def _to_begin(self) -> Iterator[int]:
        """Numbers of members that can be replaced here, the furthest behind first."""
        self._members.catch_up()
        wanted = self._members.open
        for number in sorted(wanted, key=lambda each: (wanted[each].step, each)):
            # Otherwise its checkpoint may be on another machine's disk: that machine starts it.
            is_ours = wanted[number].parent is None or wanted[number].host == socket.gethostname()
            if is_ours or (self.copies is not None and self.copies.is_here(number)):
                yield number


def _may_draw(connection: sa.Connection, *, study_id: int, n_most: int) -> bool:
    return count_members(connection, study_id) < n_most


def _may_replace(connection: sa.Connection, *, study_id: int, number: int) -> bool:
    return not is_replaced(connection, study_id, number)
