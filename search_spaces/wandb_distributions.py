"""The distributions of W&B sweeps as parameters of a space.

Their meaning is defined in https://docs.wandb.ai/models/sweeps/sweep-config-keys.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tuner.search_spaces.flow import line
from tuner.search_spaces.space import SpaceError, is_number, nearest

_TAKEN = {
    "uniform": ("low", "high"),
    "int_uniform": ("low", "high"),
    "log_uniform_values": ("low", "high"),
    "log_uniform": ("low", "high"),
    "q_uniform": ("low", "high", "q"),
    "q_log_uniform_values": ("low", "high", "q"),
    "categorical": ("choices",),
}
#: Distributions that Optuna does not sample.
_REFUSED = (
    "q_log_uniform",
    "inv_log_uniform",
    "inv_log_uniform_values",
    "normal",
    "q_normal",
    "log_normal",
    "q_log_normal",
    "beta",
    "q_beta",
    "categorical_w_probabilities",
)
_WHEN = "when"


def taken_distributions() -> tuple[str, ...]:
    """Names of the supported distributions, except `constant`."""
    return tuple(_TAKEN)


def read_distribution(
    name: str, body: Mapping[str, object], written: Mapping[str, object]
) -> dict[str, object]:
    """Reads a parameter with a `distribution`.

    Args:
        name: The parameter.
        body: The value in the file, with W&B's keys renamed.
        written: The value in the file.

    Raises:
        SpaceError: If it is no distribution of W&B, or has no unique meaning here.
    """
    if "type" in body:
        raise SpaceError("has both type and distribution. Keep one.", key=name)
    kind = body["distribution"]
    if kind in _REFUSED:
        near = _nearest_range(str(kind), body)
        problem = (
            f"has distribution: {kind}, which no sampler here has. Write a range or a list, such "
            f"as {line(name, near)}."
        )
        raise SpaceError(problem, key=name, suggestion=near)
    if not isinstance(kind, str) or kind not in _TAKEN:
        known = [*_TAKEN, "constant"]
        meant = nearest(str(kind), known)
        hint = f"Did you mean '{meant}'?" if meant else f"Known: {', '.join(known)}."
        problem = f"is {kind!r}, which is no distribution of W&B sweeps. {hint}"
        raise SpaceError(problem, key=f"{name}.distribution")
    rest = {key: each for key, each in body.items() if key != "distribution"}
    _refuse_other_keys(name, kind, body, written)
    match kind:
        case "uniform":
            return {"type": "float", **rest}
        case "int_uniform":
            return {"type": "int", **rest}
        case "categorical":
            return {"type": "categorical", **rest}
        case "log_uniform_values":
            return {"type": "float", **rest, "log": True}
        case "log_uniform":
            return _from_exponents(name, rest)
        case "q_uniform":
            return _from_steps(name, rest)
        case _:
            return _from_log_steps(name, rest)


def _refuse_other_keys(
    name: str, kind: str, body: Mapping[str, object], written: Mapping[str, object]
) -> None:
    for ours, key in zip(body, written, strict=True):
        if ours not in (*_TAKEN[kind], "distribution", _WHEN):
            problem = f"is not a key of distribution: {kind}."
            raise SpaceError(problem, key=f"{name}.{key}")


def _from_exponents(name: str, body: dict[str, object]) -> dict[str, object]:
    """A `log_uniform` range from exponents of e; positive ones may be meant as values."""
    low, high = body.get("low"), body.get("high")
    if not is_number(low) or not is_number(high):
        return {"type": "float", **body, "log": True}
    ends = {"low": _exp(low), "high": _exp(high)}
    from_exponents = {"type": "float", **body, **ends, "log": True}
    if low > 0:
        values = {"type": "float", **body, "log": True}
        problem = (
            "has distribution: log_uniform, whose min and max are exponents of e in W&B. "
            f"For values from {low} to {high}, write {line(name, values)}. "
            f"For exponents, write {line(name, from_exponents)}."
        )
        raise SpaceError(problem, key=name, suggestion=values)
    return from_exponents


def _exp(exponent: float) -> float:
    try:
        return math.exp(exponent)
    except OverflowError:
        return math.inf


def _from_steps(name: str, body: dict[str, object]) -> dict[str, object]:
    """`q_uniform` rounds to multiples of q: the ends must be some, or the range is another one."""
    rest, low, high, step = _ends_and_step(name, body)
    if low is None or high is None:
        return {"type": "float", **rest, "step": step}
    kind = "int" if all(isinstance(each, int) for each in (low, high, step)) else "float"
    if not (math.isfinite(low / step) and math.isfinite(high / step)):
        raise SpaceError(f"is {step}, too small for min and max.", key=f"{name}.q")
    if not (_is_multiple(low, step) and _is_multiple(high, step)):
        ends = {"low": math.ceil(low / step) * step, "high": math.floor(high / step) * step}
        inside = {"type": kind, **rest, **ends, "step": step}
        problem = (
            f"has distribution: q_uniform, which rounds to multiples of q, but min and max are "
            f"not multiples of {step}. Write {line(name, inside)}."
        )
        raise SpaceError(problem, key=name, suggestion=inside)
    return {"type": kind, **rest, "step": step}


def _from_log_steps(name: str, body: dict[str, object]) -> dict[str, object]:
    """Optuna has steps on a log scale for whole numbers only, and of 1 only."""
    rest, low, high, step = _ends_and_step(name, body)
    is_whole = low is None or high is None or (float(low).is_integer() and float(high).is_integer())
    if step != 1 or not is_whole:
        kind = "int" if is_whole and float(step).is_integer() else "float"
        smooth = {"type": kind, **rest, "log": True}
        problem = (
            f"has distribution: q_log_uniform_values with q: {step}, but a log scale has no steps, "
            f"except for whole numbers in steps of 1. Write {line(name, smooth)}."
        )
        raise SpaceError(problem, key=name, suggestion=smooth)
    return {"type": "int", **rest, "log": True}


def _ends_and_step(
    name: str, body: dict[str, object]
) -> tuple[dict[str, object], float | None, float | None, float]:
    """The mapping without q, its ends if they are numbers, and q."""
    rest = {key: each for key, each in body.items() if key != "q"}
    step = body.get("q", 1)
    if not is_number(step) or not math.isfinite(step) or step <= 0:
        raise SpaceError(f"is {step!r}, but must be a number above 0.", key=f"{name}.q")
    low, high = (
        each if is_number(each) and math.isfinite(each) else None
        for each in (body.get("low"), body.get("high"))
    )
    return rest, low, high, step


def _is_multiple(number: float, step: float) -> bool:
    quotient = number / step
    return math.isfinite(quotient) and abs(quotient - round(quotient)) < 1e-9


def _nearest_range(kind: str, body: Mapping[str, object]) -> object:
    """The closest supported parameter for a distribution that cannot be sampled."""
    if kind == "categorical_w_probabilities":
        return body.get("choices", ["a", "b"])
    low, high = body.get("low"), body.get("high")
    mean, deviation = body.get("mu", 0.0), body.get("sigma", 1.0)
    if "normal" in kind and is_number(mean) and is_number(deviation):
        low, high = mean - 2 * deviation, mean + 2 * deviation
    if not is_number(low) or not is_number(high):
        low, high = 0.0, 1.0
    elif kind in ("q_log_uniform", "inv_log_uniform", "log_normal", "q_log_normal"):
        low, high = _exp(low), _exp(high)
    log = {"log": True} if "log" in kind and low > 0 else {}
    return {"type": "float", "low": float(low), "high": float(high), **log}
