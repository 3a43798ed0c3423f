"""Outcomes of trials and attempts, as words for the pages and as small numbers."""

from __future__ import annotations

from optuna.trial import TrialState

from tuner.domain.attempt import Cause, Outcome
from tuner.queries.trials.listing import (
    ABANDONED,
    NOT_A_NUMBER,
    WORDS,
    WORDS_WITHOUT_RESULT,
    word_of,
)

#: The places of the words are their codes in columns.
ALL_WORDS: tuple[str, ...] = (
    *WORDS.values(),
    *(outcome.value for outcome in Outcome if outcome.value not in WORDS.values()),
    NOT_A_NUMBER,
    ABANDONED,
)
CODES = {word: code for code, word in enumerate(ALL_WORDS)}
COMPLETED = CODES[WORDS[TrialState.COMPLETE]]
PRUNED = CODES[WORDS[TrialState.PRUNED]]
RUNNING = CODES[WORDS[TrialState.RUNNING]]
WAITING = CODES[WORDS[TrialState.WAITING]]
#: Trials that ran out of memory or reported NaN have no result, though Optuna stores a last report.
WITHOUT_RESULT = tuple(CODES[word] for word in WORDS_WITHOUT_RESULT)
PAUSED = CODES[Outcome.PAUSED.value]
ABANDONED_CODE = CODES[ABANDONED]


def code_of(
    state: TrialState,
    outcome: Outcome | None,
    cause: Cause | None,
    *,
    is_paused: bool,
    is_abandoned: bool,
    is_ahead: bool,
) -> int:
    """The code of a trial's word: see `word_of`."""
    word = word_of(
        state, outcome, cause, is_paused=is_paused, is_abandoned=is_abandoned, is_ahead=is_ahead
    )
    return CODES[word]


def code_of_attempt(outcome: Outcome | None, cause: Cause | None) -> int:
    """The code of an attempt's word: its outcome, or that its value was not a number."""
    if outcome is None:
        return RUNNING
    is_nan = outcome.is_failure and cause is Cause.NOT_A_NUMBER
    return CODES[NOT_A_NUMBER if is_nan else outcome.value]


def shown(word: str) -> str:
    """`out of memory`"""
    return word.replace("_", " ")
