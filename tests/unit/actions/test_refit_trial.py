"""Whether a trial of one space could be one of another."""

from __future__ import annotations

import pytest

from tuner.actions.transfer.refit_trial import LeftOut, refitted
from tuner.search_spaces import parse_space

LR = {"type": "float", "low": 0.01, "high": 1.0}
OPTIMIZER = {"type": "categorical", "choices": ["sgd", "adamw"]}
MOMENTUM = {"type": "float", "low": 0.0, "high": 1.0, "when": {"optimizer": "sgd"}}


@pytest.mark.parametrize(
    ("space", "params", "expected"),
    [
        ({"lr": LR}, {"lr": 0.5}, {"lr": 0.5}),
        ({"lr": LR}, {"lr": 1}, {"lr": 1.0}),
        ({"lr": LR, "epochs": 20}, {"lr": 0.5, "epochs": 20}, {"lr": 0.5}),
        ({"lr": LR, "new": "a constant"}, {"lr": 0.5}, {"lr": 0.5}),
        (
            {"lr": 0.5, "optimizer": OPTIMIZER},
            {"lr": 0.5, "optimizer": "sgd"},
            {"optimizer": "sgd"},
        ),
        (
            {"optimizer": OPTIMIZER, "momentum": MOMENTUM},
            {"optimizer": "adamw"},
            {"optimizer": "adamw"},
        ),
        (
            {"width": {"type": "int", "low": 1, "high": 99}, "lr": LR},
            {"width": 64, "lr": 0.5},
            {"width": 64, "lr": 0.5},
        ),
    ],
    ids=["same", "whole number", "constant", "new constant", "fixed", "condition", "was constant"],
)
def test_trial_fits(
    space: dict[str, object], params: dict[str, str | float], expected: dict[str, object]
) -> None:
    found = refitted(params, parse_space(space))
    assert found == expected
    assert [type(each) for each in found.values()] == [type(each) for each in expected.values()]


@pytest.mark.parametrize(
    ("space", "params", "reason"),
    [
        ({"lr": LR}, {"lr": 5.0}, "lr is outside of its new range"),
        ({"optimizer": OPTIMIZER}, {"optimizer": "adam"}, "optimizer is outside of its new range"),
        ({"lr": LR, "optimizer": OPTIMIZER}, {"lr": 0.5}, "optimizer is new, and these trials"),
        ({"lr": LR}, {"lr": 0.5, "width": 3}, "width is gone from the space"),
        ({"lr": LR, "epochs": 20}, {"lr": 0.5, "epochs": 10}, "epochs is always 20 now"),
        (
            {"optimizer": OPTIMIZER, "momentum": MOMENTUM},
            {"optimizer": "adamw", "momentum": 0.5},
            "momentum no longer exists with the other values",
        ),
        (
            {"optimizer": OPTIMIZER, "momentum": MOMENTUM},
            {"optimizer": "sgd"},
            "momentum is new, and these trials",
        ),
    ],
    ids=["range", "choice", "new", "gone", "other constant", "condition", "new condition"],
)
def test_trial_is_left_out(
    space: dict[str, object], params: dict[str, str | float], reason: str
) -> None:
    with pytest.raises(LeftOut, match=reason):
        refitted(params, parse_space(space))
