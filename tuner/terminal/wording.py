"""Figures and settings as short text."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.dispatch.notices import Ended, Notice, Said, Started
from tuner.domain.attempt import Ending, Outcome
from tuner.search_spaces.values import ParamValue, format_value

_MINUTE_S = 60
_HOUR_S = 3600


def settings(params: Mapping[str, ParamValue]) -> str:
    """`lr 0.012, optimizer sgd`"""
    return ", ".join(f"{name} {short(value)}" for name, value in params.items())


def values_text(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.6g}" for name, value in values.items())


def short(value: ParamValue) -> str:
    return f"{value:.4g}" if isinstance(value, float) else format_value(value)


def duration(seconds: float) -> str:
    """`42 s`, `3 min 20 s`, `2 h 05 min`"""
    whole = round(seconds)
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S:02d} s"
    return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S:02d} min"


def trials_text(*, n_finished: int, n_begun: int, n_paused: int, limit: int | None) -> str:
    """`6 of 48 trials finished, 14 begun, 8 paused`"""
    of_limit = f" of {limit}" if limit is not None else ""
    paused = f", {n_paused} paused" if n_paused else ""
    return f"{n_finished}{of_limit} trials finished, {n_begun} begun{paused}"


def line(notice: Notice) -> str:
    """One notice as one line; a failure brings its last lines of output along."""
    match notice:
        case Started():
            known = f": {settings(notice.params)}" if notice.params else ""
            return f"{notice.attempt}: started on {', '.join(notice.devices)}{known}"
        case Ended():
            return _ended(notice)
        case Said():
            return notice.text


def is_loud(notice: Notice) -> bool:
    """Whether a notice is shown above the live view."""
    match notice:
        case Ended():
            return notice.is_best or notice.ending.outcome.is_failure
        case Said():
            return True
        case Started():
            return False


def _ended(notice: Ended) -> str:
    ending = notice.ending
    text = f"{notice.attempt}: {outcome_text(ending.outcome)}"
    if ending.outcome is Outcome.COMPLETED:
        mark = "on the Pareto front" if len(ending.values) > 1 else "best"
        return text + f", {values_text(ending.values)}" + (f" ({mark})" if notice.is_best else "")
    if not ending.outcome.is_failure:
        return text + (f": {first_line(ending)}" if ending.detail else "")
    again = " It is tried again." if notice.will_retry else ""
    return f"{text}.{again}\n{indent(ending.detail)}\n    whole log: {notice.log_path}"


def outcome_text(outcome: Outcome) -> str:
    return outcome.value.replace("_", " ")


def first_line(ending: Ending) -> str:
    return ending.detail.splitlines()[0] if ending.detail else ""


def indent(text: str) -> str:
    return "\n".join(f"    {each}" for each in text.splitlines())
