"""A rung, and the trials at it that are compared with later in their training. No I/O."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from statistics import pvariance

from tuner.search.rungs.order.agreement import END, Agreement, RungTrust, agreement_of

#: Newest pairs that are compared.
_N_COMPARED = 30
#: A trial has relapsed if it is worse by this fraction of the newest trials at a rung: not even the
#: best would still be in the best third then, which is what a rung selects.
_RELAPSE = 1 / 3
#: Newest trials at a rung that it is compared with, and the minimum number of them.
_N_COMPARED_WITH = 100
_N_TO_RELAPSE = 4


class ComparedRung:
    """Evidence for and against a rung.

    Attributes:
        is_open: Whether every trial passes it.
        after: Trials after this one count, since the rung opened or closed.
        turned_by: The evidence that opened or closed it.
    """

    def __init__(self) -> None:
        self.is_open = False
        self.after = -1
        self.turned_by: RungTrust | None = None
        #: By what is later: the losses at both of the newest trials that reached both.
        self._pairs: dict[float, deque[tuple[float, float]]] = {}
        #: Cached agreements.
        self._known: dict[float, Agreement] = {}
        #: Losses of the newest trials that reached it.
        self._newest: deque[float] = deque(maxlen=_N_COMPARED_WITH)

    @property
    def later(self) -> list[float]:
        """What it is compared with, the latest first."""
        return sorted({END, *self._pairs}, reverse=True)

    def reach(self, loss: float) -> None:
        """A trial has reached it."""
        self._newest.append(loss)

    def add(self, later: float, pair: tuple[float, float]) -> None:
        """Adds the losses of a trial at the rung and later."""
        self._pairs.setdefault(later, deque(maxlen=_N_COMPARED)).append(pair)
        self._known.pop(later, None)

    def agreement(self, later: float) -> Agreement:
        """Agreement of its ranking with a later one, of the newest trials."""
        if later not in self._known:
            self._known[later] = agreement_of(list(self._pairs.get(later, ())))
        return self._known[later]

    def n_drawn(self, later: float) -> float:
        """Trials drawn at random of those at the rung that would vary as much as those compared."""
        in_order = sorted(self._newest)
        places = [_place(loss, in_order) for loss, _ in self._pairs.get(later, ())]
        variance = pvariance([_place(loss, in_order) for loss in in_order])
        # Where all are equal the rung selects none by its loss.
        return 1 + len(places) * pvariance(places) / variance if variance else len(places)

    @property
    def can_judge(self) -> bool:
        """Whether enough trials have reached it to tell a relapse."""
        return len(self._newest) >= _N_TO_RELAPSE

    def is_relapse(self, early: float, late: float) -> bool:
        """Whether a trial is worse than it was at the rung, by many of the trials there."""
        if late <= early:
            return False  # Most improve, and need not be counted.
        n_overtaking = sum(early <= each < late for each in self._newest)
        return n_overtaking > _RELAPSE * len(self._newest)

    def turn(self, *, is_open: bool, after: int, by: RungTrust | None) -> None:
        """Opens or closes it; what was compared so far no longer counts."""
        self.is_open, self.after, self.turned_by = is_open, after, by
        self._pairs.clear()
        self._known.clear()


def _place(loss: float, in_order: Sequence[float]) -> int:
    """Twice the mean rank, from 0 on."""
    return bisect_left(in_order, loss) + bisect_right(in_order, loss)
