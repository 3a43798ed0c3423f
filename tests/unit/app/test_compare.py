"""What is said of trials and studies side by side."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.app.charts.compare import studies_figure
from tuner.app.charts.style import Titles
from tuner.app.data.compare.studies import Band, band_of, seed_groups
from tuner.app.data.compare.trials import numbers_in
from tuner.app.data.convergence.series import BestSoFar


def line(x: list[float], y: list[float]) -> BestSoFar:
    return BestSoFar(x=np.array(x), y=np.array(y), numbers=np.arange(len(x)))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("3,17,20", [3, 17, 20]),
        ("3, 3,x,-1,1.5,,4", [3, 4]),
        ("9" * 40, []),
        ("", []),
        (",".join(map(str, range(20))), list(range(10))),
    ],
)
def test_numbers_of_an_address(text: str, numbers: list[int]) -> None:
    assert numbers_in(text) == numbers


def test_studies_that_differ_by_a_number_at_the_end_are_runs_of_one() -> None:
    names = ["digits", "digits-1", "digits_seed2", "other", "digits.3", "7"]
    assert seed_groups(names) == {
        "digits": ["digits", "digits-1", "digits_seed2", "digits.3"],
        "other": ["other"],
        "7": ["7"],
    }


def test_a_band_is_where_all_runs_have_a_value() -> None:
    band = band_of(
        {
            "a": line([0, 4, 10], [3.0, 1.0, 1.0]),
            "b": line([2, 6, 8], [5.0, 2.0, 2.0]),
            "c": line([1, 9], [4.0, 4.0]),
            "empty": line([], []),
        }
    )
    assert band is not None
    assert band.names == ("a", "b", "c")
    assert band.x.tolist() == [2, 4, 6, 8]
    assert band.median.tolist() == [4, 4, 2, 2]
    assert band.low.tolist() == [3, 1, 1, 1]
    assert band.high.tolist() == [5, 5, 4, 4]


def test_runs_without_a_place_in_common_have_no_band() -> None:
    assert band_of({"a": line([0, 1], [1, 1]), "b": line([2, 3], [1, 1])}) is None
    assert band_of({"a": line([], [])}) is None


def test_a_band_is_drawn_with_its_median_and_what_it_is_of() -> None:
    band = band_of({"a": line([0, 2], [3.0, 1.0]), "b": line([0, 2], [5.0, 2.0])})
    assert band is not None
    lines: dict[str, BestSoFar | Band] = {"digits": band, "other": line([0, 2], [1.0, 1.0])}
    figure = studies_figure(lines, Titles(x="Trial", y="loss"), revision="s")
    named = [trace.name for trace in figure.data if trace.showlegend is not False]
    assert named == ["digits (median of 2)", "other"]
    assert list(figure.data[2].customdata) == ["3 to 5", "1 to 2"]
    assert figure.data[2].line.color != figure.data[3].line.color
