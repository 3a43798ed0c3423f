from __future__ import annotations

from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner.search.trial_attributes.memo import TrialMemo


def a_trial(number: int, state: TrialState = TrialState.PRUNED, last: int = 1) -> FrozenTrial:
    trial = create_trial(state=state, intermediate_values={last: 0.5})
    trial.number = number
    return trial


class Counted:
    """The last step of a trial, and of which trials it was asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.memo = TrialMemo(self)

    def __call__(self, trial: FrozenTrial) -> int:
        self.asked.append(trial.number)
        return max(trial.intermediate_values)


def test_ended_trials_are_asked_once() -> None:
    counted = Counted()
    trials = [a_trial(0), a_trial(1, last=4)]
    assert counted.memo.of(trials) == counted.memo.of(trials) == [1, 4]
    assert counted.memo.of([*trials, a_trial(2, last=9)]) == [1, 4, 9]
    assert counted.asked == [0, 1, 2]


def test_a_running_trial_is_asked_each_time() -> None:
    counted = Counted()
    trial = a_trial(0, TrialState.RUNNING)
    assert counted.memo.of([trial]) == [1]
    trial.intermediate_values[7] = 0.5
    assert counted.memo.of([trial]) == [7]
    trial.state = TrialState.PRUNED
    assert counted.memo.of([trial]) == counted.memo.of([trial]) == [7]
    assert counted.asked == [0, 0, 0]


def test_a_trial_of_another_study_is_not_taken_for_the_same() -> None:
    counted = Counted()
    assert counted.memo.of([a_trial(0)]) == [1]
    assert counted.memo.of([a_trial(0, last=5)]) == [5]


def test_trials_that_are_no_longer_shown_are_forgotten() -> None:
    counted = Counted()
    first, second = a_trial(0), a_trial(1)
    counted.memo.of([first])
    counted.memo.of([second])
    counted.memo.of([first])
    assert counted.asked == [0, 1, 0]
