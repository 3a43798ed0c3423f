"""Output of `tuner trials`: a table, CSV or JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from tuner.queries.studies import Objective
from tuner.queries.trials.listing import PARAM_PREFIX, PAUSED, WORDS, StoredTrial
from tuner.search_spaces.values import format_value
from tuner.terminal import wording
from tuner.terminal.tables import as_json_lines, plain, table
from tuner.terminal.times import instant, seconds

_VALUE_PREFIX = "values_"


def trials_text(trials: Sequence[StoredTrial], objectives: Sequence[Objective]) -> str:
    names = [each.name for each in objectives]
    header = ("trial", "state", *names, "took", "on", "attempts", "parameters")
    return table(header, [_row(each, names) for each in trials])


def _row(trial: StoredTrial, names: Sequence[str]) -> tuple[str, ...]:
    shown = trial.result or trial.last_values
    values = [f"{shown[name]:.6g}" if name in shown else "-" for name in names]
    return (
        str(trial.number),
        _state(trial),
        *values,
        seconds(trial.duration_s),
        devices_text(trial) or "-",
        str(len(trial.attempts)),
        wording.settings(trial.params),
    )


def _state(trial: StoredTrial) -> str:
    """`paused at step 3`; the values in the row are from that step."""
    word = trial.word.replace("_", " ")
    if trial.last_step is not None:
        word = f"{word} at step {trial.last_step}"
    return f"{word}, infeasible" if trial.is_infeasible else word


def devices_text(trial: StoredTrial) -> str:
    """Devices of the last attempt."""
    return ", ".join(trial.attempts[-1].devices) if trial.attempts else ""


def trials_json(trials: Sequence[StoredTrial]) -> str:
    """A list with everything that is known of each trial."""
    return as_json_lines(_object(each) for each in trials)


def _object(trial: StoredTrial) -> dict[str, object]:
    document = plain(trial)
    assert isinstance(document, dict), "a dataclass becomes a mapping"
    if trial.reports is None:
        del document["reports"]
    return document | {"state": _stored_word(trial), "outcome": plain(trial.outcome)}


def _stored_word(trial: StoredTrial) -> str:
    """For programs: the state alone, without the outcome, which has a place of its own."""
    return PAUSED if trial.is_paused else WORDS[trial.state]


def trials_csv(trials: Sequence[StoredTrial], objectives: Sequence[Objective]) -> str:
    """A line for each trial; the columns are called as in Optuna's data frames."""
    names = [each.name for each in objectives]
    params = list(dict.fromkeys(name for each in trials for name in each.params))
    header = [
        *("number", "state", "outcome", *(f"{_VALUE_PREFIX}{name}" for name in names)),
        *("duration_s", "started_at", "completed_at", "attempts", "devices"),
        *(f"{PARAM_PREFIX}{name}" for name in params),
    ]
    text_file = io.StringIO()
    writer = csv.writer(text_file, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(_csv_row(each, names, params) for each in trials)
    return text_file.getvalue()


def trials_records(
    trials: Sequence[StoredTrial], objectives: Sequence[Objective]
) -> list[dict[str, object]]:
    """The columns of `trials_csv` with typed values; None for missing ones."""
    names = [each.name for each in objectives]
    params = list(dict.fromkeys(name for each in trials for name in each.params))
    return [
        {
            "number": trial.number,
            "state": WORDS[trial.state],
            "outcome": trial.outcome.value if trial.outcome else None,
            **{f"{_VALUE_PREFIX}{name}": trial.values.get(name) for name in names},
            "duration_s": trial.duration_s,
            "started_at": trial.started_at,
            "completed_at": trial.completed_at,
            "attempts": len(trial.attempts),
            "devices": devices_text(trial),
            **{f"{PARAM_PREFIX}{name}": trial.params.get(name) for name in params},
        }
        for trial in trials
    ]


def _csv_row(
    trial: StoredTrial, names: Sequence[str], params: Iterable[str]
) -> list[str | int | float]:
    instants = [instant(at) if at else "" for at in (trial.started_at, trial.completed_at)]
    return [
        trial.number,
        _stored_word(trial),
        trial.outcome.value if trial.outcome else "",
        *(trial.values.get(name, "") for name in names),
        "" if trial.duration_s is None else trial.duration_s,
        *instants,
        len(trial.attempts),
        devices_text(trial),
        *(format_value(trial.params[name]) if name in trial.params else "" for name in params),
    ]
