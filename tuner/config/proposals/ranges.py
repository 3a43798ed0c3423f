"""Proposes ranges around the defaults that a program has for its options."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tuner.search_spaces.space import is_number

_SHARE = re.compile(
    # Not: iterations, durations, problem.
    r"drop|ratio(?!n)|fraction|prob(?!lem)|smoothing|subsample|colsample|momentum|beta|gamma$"
)
_ON_A_LOG_SCALE = re.compile(
    r"(^|[._-])(lr|wd|eta|alpha|eps|lambda)|learning_?rate|decay|reg|temp|"
    r"(entropy|ent|vf|value)_?(loss_?)?coef"
)
_SIZE = re.compile(r"batch|hidden|width|dim$|units|channels|embed|neurons|filters|rank$|n_estim")
_DEPTH = re.compile(r"layers|depth|blocks|heads|stages")
_NOT_TUNED = re.compile(
    r"(^|[._-])(test|val|valid|eval|log|print|save|seed|port|workers|iters|iterations|epochs|"
    r"interval|min_lr|noise|cycle|ema|kd|distill|base_size|std|mean|pct|limit)([._-]|$)"
)
#: Options with choices about the machine or the kind of training, which are not tuned.
_NOT_CHOSEN = re.compile(
    r"precision|dtype|device|backend|data|split|task|mode$|level|format|distill|schedule$"
)
#: Usually tuned options, in this order.
_USUAL = tuple(
    map(
        re.compile,
        (
            r"(^|[._-])(lr|eta|learning_?rate)([._-]base)?$",
            r"batch",
            r"weight_?decay$|(^|[._-])(wd|l2|reg_lambda)$",
            r"drop",
            r"hidden|width|units|n_embd|layers|depth",
            r"momentum|beta|gamma|lambda|optim",
            r"smoothing|mixup|warmup|coef",
        ),
    )
)
MOST_SEARCHED = 10
#: Above a half these are shares, too, such as `gae_lambda`.
_SHARE_IF_LARGE = re.compile(r"lambda|alpha")
_FACTOR = 10
_DECIMALS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of a program, or a key of its configuration."""

    #: Name of the parameter.
    name: str
    default: object
    choices: Sequence[object] = ()


def propose_range(option: Option) -> object:
    """A parameter range around an option's default; None for an option that is not searched.

    Numbers are searched if their name is usually tuned, and all options with choices are.
    """
    if option.choices:
        if _NOT_CHOSEN.search(option.name.lower()):
            return None
        scalars = [each for each in option.choices if isinstance(each, str | int | float | bool)]
        return scalars if len(scalars) > 1 else None
    name, default = option.name.lower(), option.default
    if not is_number(default) or not math.isfinite(default) or _NOT_TUNED.search(name):
        return None
    if isinstance(default, int) and default > 0:
        return _whole(name, default)
    return _real(name, float(default))


def most_usual(names: Iterable[str]) -> list[str]:
    """At most ten parameters, in their order: more than that few budgets can search."""
    given = list(names)
    if len(given) <= MOST_SEARCHED:
        return given
    kept = sorted(given, key=_rank)[:MOST_SEARCHED]
    return [name for name in given if name in kept]


def _rank(name: str) -> int:
    found = (place for place, each in enumerate(_USUAL) if each.search(name.lower()))
    return next(found, len(_USUAL))


def _whole(name: str, default: int) -> object:
    if _SIZE.search(name):
        low, high = max(1, default // 4), default * 4
        return {"type": "int", "low": low, "high": high, "log": True}
    if _DEPTH.search(name):
        return {"type": "int", "low": 1, "high": default * 2 if default > 1 else 4}
    if _ON_A_LOG_SCALE.search(name):
        return _log_range(float(default))
    return None


def _real(name: str, default: float) -> object:
    if _SHARE_IF_LARGE.search(name) and 0.5 < default < 1:
        return _large_share(default)
    if _ON_A_LOG_SCALE.search(name):
        if "decay" in name and 0.5 < default < 1:
            return _large_share(default)
        return (
            {"type": "float", "low": 1e-6, "high": 1e-2, "log": True}
            if default == 0
            else (_log_range(default) if default > 0 else None)
        )
    if _SHARE.search(name) and 0 <= default <= 1:
        if default > 0.5:
            return _large_share(default)
        return {"type": "float", "low": 0.0, "high": 0.5}
    return None


def _large_share(default: float) -> object:
    return {"type": "float", "low": 0.5, "high": max(0.999, _rounded(default))}


def _log_range(default: float) -> object:
    low, high = _rounded(default / _FACTOR), _rounded(default * _FACTOR)
    return {"type": "float", "low": low, "high": high, "log": True} if 0 < low < high else None


def _rounded(number: float) -> float:
    """Without the noise of binary fractions: 0.001 * 10 is 0.01."""
    return float(f"{number:.{_DECIMALS}g}")
