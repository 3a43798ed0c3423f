"""Contrast and distance of the colours of figures, with full and with red-green blind vision."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from tuner.app.charts.palette import (
    BEST,
    COLOURS,
    DARK_BACKGROUND,
    HATCHINGS,
    LIGHT_BACKGROUND,
    OF_MANY,
    OTHER,
    SEQUENTIAL,
    SYMBOLS,
    TO_THE_BEST,
    text_on,
)
from tuner.devices.idle_causes import IdleCause
from tuner.queries.trials.listing import ABANDONED

Colour = npt.NDArray[np.float64]

#: Severity 1.0 of Machado, Oliveira and Fernandes 2009, on linear RGB.
VISIONS = {
    "full": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
}
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
#: CIE 1976 units. About 2.3 can just be noticed side by side.
LEAST_DISTANCE = 13.5


def linear(colour: str) -> Colour:
    rgb = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """WCAG 2.2's ratio."""
    low, high = sorted(float(TO_XYZ[1] @ linear(each)) for each in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(colour: str, vision: str) -> Colour:
    seen = np.clip(VISIONS[vision] @ linear(colour), 0, 1)
    xyz = TO_XYZ @ seen / np.array([0.95047, 1.0, 1.08883])
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(one: str, other: str, vision: str) -> float:
    return float(np.linalg.norm(lab(one, vision) - lab(other, vision)))


def test_the_measures_are_the_known_ones() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    # Red and green of one lightness are far from each other, but not for a deuteranope.
    assert distance("#c83200", "#6e7800", "full") > 2 * distance(
        "#c83200", "#6e7800", "deuteranopia"
    )


@pytest.mark.parametrize("background", [LIGHT_BACKGROUND, DARK_BACKGROUND])
def test_each_colour_has_a_contrast_of_three_on_the_background(background: str) -> None:
    drawn = {
        **COLOURS,
        "best": BEST,
        "other": OTHER,
        **{f"number {at}": each for at, each in enumerate(OF_MANY)},
        **{f"idle: {cause.value}": each.colour for cause, each in HATCHINGS.items()},
        **{f"scale at {at}": each for at, each in TO_THE_BEST},
    }
    ratios = {name: round(contrast(each, background), 2) for name, each in drawn.items()}
    assert {name: ratio for name, ratio in ratios.items() if ratio < 3} == {}


@pytest.mark.parametrize("vision", list(VISIONS))
def test_states_are_told_apart(vision: str) -> None:
    states = {**COLOURS, "best": BEST, "other": OTHER}
    # Both are attempts whose dispatcher was lost.
    del states[ABANDONED]
    near = {
        (one, other): round(distance(states[one], states[other], vision), 1)
        for one, other in itertools.combinations(states, 2)
        if distance(states[one], states[other], vision) < LEAST_DISTANCE
    }
    assert near == {}


@pytest.mark.parametrize("vision", list(VISIONS))
def test_neighbours_in_turn_are_told_apart(vision: str) -> None:
    pairs = itertools.pairwise([*OF_MANY, OF_MANY[0]])
    assert min(distance(*pair, vision) for pair in pairs) >= LEAST_DISTANCE


def test_each_state_has_a_symbol_of_its_own_beside_its_colour() -> None:
    assert set(SYMBOLS) == set(COLOURS)
    assert len(set(SYMBOLS.values())) == len(set(COLOURS.values()))


def test_each_cause_of_idle_time_has_a_hatching_of_its_own() -> None:
    assert set(HATCHINGS) == set(IdleCause)
    assert len({(each.colour, each.shape) for each in HATCHINGS.values()}) == len(IdleCause)


def test_much_stands_out_most_from_the_background() -> None:
    # The scale is reversed in the dark.
    for scale, background in (
        (SEQUENTIAL, LIGHT_BACKGROUND),
        (SEQUENTIAL[::-1], DARK_BACKGROUND),
    ):
        ratios = [contrast(colour, background) for _, colour in scale]
        assert ratios == sorted(ratios)


@pytest.mark.parametrize("colour", sorted({*COLOURS.values(), *OF_MANY, BEST, OTHER}))
def test_text_in_a_bar_can_be_read(colour: str) -> None:
    assert contrast(text_on(colour), colour) >= 4.5
