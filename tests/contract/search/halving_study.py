"""A study that is searched without a dispatcher: trials take turns, a step at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from optuna.pruners import BasePruner
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial, TrialState

from tuner.config import Direction
from tuner.domain.messages import Action
from tuner.search.asked_trial import AskedTrial
from tuner.search.study import StudySearch
from tuner.store.connection.database import open_database

N_STEPS = 9

MakePruner = Callable[[], BasePruner]
Quality = Callable[[int, int], float]


def quality_of(number: int, step: int) -> float:
    """Grows along the curve; between trials in no order, and never twice the same."""
    return number * 7 % 31 + step / 100


@contextmanager
def searches(
    url: str, make_pruner: MakePruner, n: int = 1, direction: Direction = Direction.MAXIMIZE
) -> Iterator[list[StudySearch]]:
    """As many dispatchers' views of one study as wanted, each with a connection of its own."""
    databases = [open_database(url) for _ in range(n)]
    try:
        yield [
            StudySearch(
                database.storage,
                "study",
                objectives={"accuracy": direction},
                space=None,
                sampler=RandomSampler(0),
                pruner=make_pruner(),
            )
            for database in databases
        ]
    finally:
        for database in databases:
            database.close()


@dataclass(kw_only=True)
class Player:
    """What trains in place of workers, and remembers what was trained.

    Args:
        n_trials: That are begun at most.
        n_steps: Of each.
    """

    n_trials: int
    n_steps: int = N_STEPS
    quality: Quality = quality_of
    #: Trial and step, in order.
    seen: list[tuple[int, int]] = field(default_factory=list)
    #: Numbers of trials, in order.
    paused: list[int] = field(default_factory=list)

    def done(self, number: int) -> int:
        return max((step for each, step in self.seen if each == number), default=0)

    def turn(self, search: StudySearch) -> bool:
        """Begins or resumes a trial and trains it as far as it may; False where none is left."""
        search.sync()
        asked = search.resume()
        if asked is None and search.counts.n_begun < self.n_trials:
            asked = search.ask()
        if asked is None:
            asked = search.resume(is_last=True)
        if asked is None:
            return False
        self._train(search, asked)
        search.study._storage.flush()  # type: ignore[attr-defined]
        return True

    def play(self, views: Sequence[StudySearch]) -> None:
        """Lets each view take a turn after the other until nothing is left to any of them."""
        while any([self.turn(search) for search in views]):
            pass

    def end(self, search: StudySearch) -> list[FrozenTrial]:
        """The study is over; gives its trials."""
        search.sync()
        search.end_paused()
        return search.study.get_trials()

    def _train(self, search: StudySearch, asked: AskedTrial) -> None:
        for step in range(self.done(asked.number) + 1, self.n_steps + 1):
            value = self.quality(asked.number, step)
            self.seen.append((asked.number, step))
            decision = search.report(asked.trial_id, step, {"accuracy": value})
            if decision.action is Action.PAUSE:
                assert decision.reason
                self.paused.append(asked.number)
                search.pause(asked.trial_id)
                return
            if decision.action is Action.PRUNE:
                assert decision.reason
                search.prune(asked.trial_id)
                return
        last = self.quality(asked.number, self.n_steps)
        search.complete(asked.trial_id, {"accuracy": 0.0 if math.isnan(last) else last})


def ended(trials: Sequence[FrozenTrial]) -> bool:
    return all(each.state in (TrialState.COMPLETE, TrialState.PRUNED) for each in trials)
