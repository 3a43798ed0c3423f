"""Which running trials of other processes are read whole at a look."""

from __future__ import annotations

from tuner.store.optuna_tables.running_reads import MOST_WHOLE, Marks, RunningReads

MANY = range(1, 4 * MOST_WHOLE + 1)


class Looks:
    """Looks at running trials, a second apart."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.reads = RunningReads(lambda: self.now_s)

    def look(self, running: range, *, newest: int = 0) -> tuple[frozenset[int], Marks | None]:
        plan = self.reads.plan(running)
        marks = Marks(newest, newest, newest, newest) if len(running) > MOST_WHOLE else None
        self.reads.looked(plan, running, marks)
        self.now_s += 1.0
        return plan.whole, plan.after


def test_few_trials_are_read_whole() -> None:
    looks = Looks()
    few = range(MOST_WHOLE)
    assert looks.look(few) == looks.look(few) == (frozenset(few), None)


def test_many_trials_take_turns() -> None:
    looks = Looks()
    assert looks.look(MANY, newest=7) == (frozenset(MANY), None)
    wholes = [looks.look(MANY)[0] for _ in range(50)]
    turns = [whole for whole in wholes if whole]
    assert [len(whole) for whole in turns] == [MOST_WHOLE] * 5
    assert frozenset().union(*turns[:4]) == frozenset(MANY)
    assert turns[4] == turns[0]


def test_trials_that_have_begun_since_wait_for_their_turn() -> None:
    looks = Looks()
    looks.look(MANY)
    more = range(1, MANY.stop + 2)
    wholes = [looks.look(more)[0] for _ in range(50)]
    assert not set(more) - set(MANY) & frozenset().union(*wholes[:40])
    assert frozenset().union(*wholes) == frozenset(more)


def test_rows_are_read_again_for_some_seconds() -> None:
    looks = Looks()
    looks.look(MANY, newest=100)
    after = [looks.look(MANY, newest=100 + number)[1] for number in range(1, 7)]
    assert [marks.curves for marks in after if marks] == [100, 100, 100, 101, 102, 103]


def test_many_trials_after_few_begin_anew() -> None:
    looks = Looks()
    looks.look(MANY, newest=100)
    looks.look(range(1, 3))
    assert looks.look(MANY, newest=200) == (frozenset(MANY), None)
    assert looks.look(MANY, newest=200)[1] == Marks(200, 200, 200, 200)
