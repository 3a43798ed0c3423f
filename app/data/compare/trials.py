"""Several trials in the rows of one table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from tuner.app.data.devices.trial_use import TrialUse
from tuner.app.data.digits import four_digits, values_text
from tuner.app.data.outcome_words import shown
from tuner.app.data.trials.curves import Curve
from tuner.app.data.trials.one_trial import OneTrial
from tuner.queries.usage import AttemptUse
from tuner.terminal.times import seconds

MIN_COMPARED, MAX_COMPARED = 2, 10
_GIB = 2**30


def numbers_in(text: str) -> list[int]:
    """Trial numbers in an address, `3,17,20`. Invalid and repeated ones are dropped."""
    words = [each.strip() for each in text.split(",")]
    found = [int(each) for each in words if each.isdecimal() and len(each) <= 15]
    return list(dict.fromkeys(found))[:MAX_COMPARED]


def compared(trials: Sequence[OneTrial]) -> dict[str, list[str]]:
    """A row for each known fact, the differing parameters first; a column for each trial."""
    differing, same = _params(trials)
    uses = [_sum([attempt.use for attempt in each.trial.attempts]) for each in trials]
    facts = {
        "outcome": [shown(each.trial.word) for each in trials],
        "result": [values_text(each.trial.result) if each.trial.result else "" for each in trials],
        "last report": [_last_report(each) for each in trials],
        "duration": [_or_blank(each.trial.duration_s, seconds) for each in trials],
        "attempts": [str(len(each.trial.attempts)) for each in trials],
        "device-seconds": [_or_blank(use.device_s, four_digits) for use in uses],
        "utilization (%)": [_or_blank(use.utilization_pct, four_digits) for use in uses],
        "most memory (GiB)": [_or_blank(use.memory_max_bytes, _gib) for use in uses],
        "energy (kWh)": [_or_blank(use.energy_kwh, four_digits) for use in uses],
    }
    known = [(name, row) for name, row in facts.items() if any(row)]
    # Pairs: a parameter may be called like a fact.
    rows = [*_titled(differing, facts, ""), *known, *_titled(same, facts, " (same)")]
    columns = {"": [name for name, _ in rows]}
    for place, each in enumerate(trials):
        columns[f"trial {each.trial.number}"] = [row[place] for _, row in rows]
    return columns


def _params(trials: Sequence[OneTrial]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Rows of the parameters that differ, and of those that are the same."""
    differing, same = {}, {}
    for name in dict.fromkeys(name for each in trials for name in each.trial.params):
        exact = ["" if name not in t.trial.params else str(t.trial.params[name]) for t in trials]
        short = [_param(each, name) for each in trials]
        if len(set(exact)) == 1:
            same[name] = short
        else:
            differing[name] = short if len(set(short)) > 1 else exact
    return differing, same


def _titled(
    rows: dict[str, list[str]], facts: Collection[str], suffix: str
) -> list[tuple[str, list[str]]]:
    return [
        (f"{name} (parameter){suffix}" if name in facts else f"{name}{suffix}", row)
        for name, row in rows.items()
    ]


def curves_by_name(trials: Sequence[OneTrial]) -> dict[str, dict[str, Curve]]:
    """For each metric, the curves of the trials that reported it, by name."""
    found: dict[str, dict[str, Curve]] = {}
    for each in trials:
        for name, curve in each.curves.items():
            there = {step: value for step, value in curve.items() if np.isfinite(value)}
            if there:
                found.setdefault(name, {})[f"trial {each.trial.number}"] = Curve(
                    steps=np.array(sorted(there), dtype=np.float64),
                    values=np.array([there[step] for step in sorted(there)], dtype=np.float64),
                )
    return found


def utilization_of(use: TrialUse) -> Curve | None:
    """The mean over the trial's devices, over the seconds of its attempts; None if unknown."""
    if not use.devices:
        return None
    steps = np.concatenate([each.elapsed_s for each in use.devices])
    values = np.concatenate([each.utilization_pct for each in use.devices])
    is_known = np.isfinite(values)
    if not is_known.any():
        return None
    places, rows = np.unique(steps[is_known], return_inverse=True)
    sums = np.bincount(rows, weights=values[is_known])
    return Curve(steps=places, values=sums / np.bincount(rows))


def _param(each: OneTrial, name: str) -> str:
    """Empty if the trial has no such parameter; a choice may be None."""
    if name not in each.trial.params:
        return ""
    value = each.trial.params[name]
    return four_digits(value) if isinstance(value, float) else str(value)


def _last_report(each: OneTrial) -> str:
    if each.trial.last_step is None:
        return ""
    return f"step {each.trial.last_step}: {values_text(each.trial.last_values)}"


def _or_blank(value: float | None, text: Callable[[float], str]) -> str:
    return "" if value is None else text(value)


def _gib(value: float) -> str:
    return f"{value / _GIB:.4g}"


def _sum(uses: Sequence[AttemptUse]) -> AttemptUse:
    """The sum over all attempts; utilization is weighted by device-seconds."""
    device_s = [each.device_s for each in uses if each.device_s is not None]
    energies = [each.energy_kwh for each in uses if each.energy_kwh is not None]
    memory = [each.memory_max_bytes for each in uses if each.memory_max_bytes is not None]
    pairs = [
        (each.utilization_pct, each.device_s or 0.0)
        for each in uses
        if each.utilization_pct is not None
    ]
    weight = sum(held for _, held in pairs)
    mean = sum(pct * held for pct, held in pairs) / weight if weight else None
    return AttemptUse(
        device_s=sum(device_s) if device_s else None,
        utilization_pct=mean,
        memory_max_bytes=max(memory, default=None),
        energy_kwh=sum(energies) if energies else None,
    )
