"""Which lines of a program's output are metrics, and when they make a report."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.config.notation.metric_pattern import expand
from tuner.trials.worker.metrics import Curve, Reading, line_reader, read_json

ONE = ("accuracy",)
TWO = ("accuracy", "size")


# -- JSON lines ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "reading"),
    [
        ('{"accuracy": 0.5}', Reading(step=None, values={"accuracy": 0.5})),
        ('  {"accuracy": 1}  ', Reading(step=None, values={"accuracy": 1.0})),
        ('{"accuracy": "0.5", "step": "3"}', Reading(step=3, values={"accuracy": 0.5})),
        (
            '{"step": 2, "accuracy": 0.5, "loss": 3, "note": "slow", "done": true, "x": null}',
            Reading(step=2, values={"accuracy": 0.5}, metrics={"loss": 3.0}),
        ),
        ('{"accuracy": Infinity}', Reading(step=None, values={"accuracy": float("inf")})),
        ('{"accuracy": 1, "step": NaN}', Reading(step=None, values={"accuracy": 1.0})),
        ('{"accuracy": 1, "step": Infinity}', Reading(step=None, values={"accuracy": 1.0})),
        # Two ranks that printed at once.
        ('{"accuracy": 0.5}{"accuracy": 0.6}', Reading(step=None, values={"accuracy": 0.5})),
        ('{"accuracy": 0.5} {"accuracy": 0.', Reading(step=None, values={"accuracy": 0.5})),
    ],
)
def test_json_line_is_read(line: str, reading: Reading) -> None:
    assert read_json(line, ONE) == reading


@pytest.mark.parametrize(
    "line",
    [
        "",
        "accuracy 0.5",
        '{"accuracy": 0.5',
        "[1, 2]",
        '"accuracy"',
        '{"accuracy": 0.5} is it',
        '{"loss": 0.5, "step": 1}',
        '{"accuracy": null}',
        '{"accuracy": true}',
        '{"accuracy": "high"}',
        '{"accuracy": [0.5]}',
        '{"accuracy": 1' + "0" * 400 + "}",
        '{"accuracy":' * 10_000,
    ],
)
def test_other_lines_are_not_ours(line: str) -> None:
    assert read_json(line, ONE) is None


@given(st.text())
def test_no_line_is_an_accident(line: str) -> None:
    read_json(line, ONE)
    read_json("{" + line, ONE)


@given(st.dictionaries(st.sampled_from([*TWO, "step", "loss"]), st.floats() | st.integers()))
def test_every_number_that_json_can_hold_is_read_or_left(found: dict[str, float]) -> None:
    reading = read_json(json.dumps(found), TWO)
    if reading is not None:
        assert set(reading.values) <= set(TWO)
        assert set(reading.metrics) <= {"loss"}


# -- patterns ------------------------------------------------------------------------------------


def test_pattern_finds_its_groups_anywhere_in_a_line() -> None:
    read = line_reader(ONE, r"epoch (?P<step>\d+): accuracy=(?P<accuracy>[-+.\de]+)")
    line = "[info] epoch 3: accuracy=9.1e-01 (best)"
    assert read(line) == Reading(step=3, values={"accuracy": 0.91})
    assert read("[info] epoch 3 begins") is None


def test_pattern_without_a_step() -> None:
    assert line_reader(ONE, r"(?P<accuracy>\S+)$")("is 0.5") == Reading(
        step=None, values={"accuracy": 0.5}
    )


def test_group_that_holds_no_number_is_left() -> None:
    assert line_reader(ONE, r"accuracy (?P<accuracy>\S+)")("accuracy unknown") is None


def test_group_that_took_no_part_is_left() -> None:
    read = line_reader(TWO, r"accuracy (?P<accuracy>\S+)|size (?P<size>\S+)")
    assert read("size 3") == Reading(step=None, values={"size": 3.0})


def test_without_a_pattern_json_is_read() -> None:
    assert line_reader(ONE, None)('{"accuracy": 1}') == Reading(step=None, values={"accuracy": 1.0})


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.67e-06", 1.67e-06),
        ("-3", -3.0),
        ("+.5", 0.5),
        ("7.", 7.0),
        ("2E+10", 2e10),
        ("inf", float("inf")),
        ("-Infinity", float("-inf")),
    ],
)
def test_place_takes_every_form_of_a_number(text: str, number: float) -> None:
    read = line_reader(ONE, expand(r"epoch {step}\b.*accuracy[:= ]+{accuracy}"))
    assert read(f"epoch 12, accuracy: {text}, loss 1") == Reading(
        step=12, values={"accuracy": number}
    )


def test_place_takes_nan() -> None:
    reading = line_reader(ONE, expand("accuracy {accuracy}"))("accuracy nan")
    assert reading is not None
    assert math.isnan(reading.values["accuracy"])


@pytest.mark.parametrize("line", ["accuracy info", "accuracy nano", "accuracy -", "accuracy e5"])
def test_place_takes_no_word(line: str) -> None:
    assert line_reader(ONE, expand("accuracy {accuracy}"))(line) is None


@pytest.mark.parametrize("pattern", [r"\d{3}", r"\d{2,}", r"\{step}", r"\N{DASH}x", "{}", "{ x }"])
def test_braces_that_are_no_places_stay(pattern: str) -> None:
    assert expand(pattern) == pattern


@pytest.mark.parametrize(
    ("pattern", "line", "shown"),
    [
        (r"loss (?P<accuracy>[\d.]+)", "loss 1.67e-06 (best)", "1.67e-06"),
        (r"loss (?P<accuracy>\d+)", "loss 12.5", "12.5"),
        (r"loss (?P<accuracy>\d\.\d)", "loss 0.125, lr 1", "0.125"),
    ],
)
def test_number_that_is_cut_is_said(pattern: str, line: str, shown: str) -> None:
    reading = line_reader(ONE, pattern)(line)
    assert reading is not None
    assert f"{shown!r}. Write {{accuracy}} in the pattern" in reading.cut


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"loss (?P<accuracy>[\d.]+)", "loss 1.67, lr 0.1"),
        (r"(?P<accuracy>[\d.]+)", "0.5 3"),
        (r"(?P<accuracy>[\d.]+)", "0.5em"),
        (r"(?P<step>\d+)/\d+ (?P<accuracy>[\d.]+)", "3/10 0.5%"),
    ],
)
def test_number_that_is_whole_is_not_doubted(pattern: str, line: str) -> None:
    reading = line_reader(ONE, pattern)(line)
    assert reading is not None
    assert reading.cut == ""


# -- from readings to reports --------------------------------------------------------------------


def _reading(step: float | None = None, **values: float) -> Reading:
    return Reading(step=step, values=values)


def test_lines_without_a_step_are_counted_from_0() -> None:
    curve = Curve(ONE)
    assert [curve.add(_reading(accuracy=value)) for value in (0.1, 0.2, 0.3)] == [0, 1, 2]
    assert curve.values == {"accuracy": 0.3}


def test_step_of_a_line_wins_and_counting_goes_on_from_it() -> None:
    curve = Curve(ONE)
    steps = [curve.add(_reading(step, accuracy=1.0)) for step in (None, 10, None, 5, None)]
    assert steps == [0, 10, 11, 5, 6]


def test_negative_step_is_the_first() -> None:
    assert Curve(ONE).add(_reading(-1, accuracy=1.0)) == 0


def test_report_waits_for_every_objective() -> None:
    curve = Curve(TWO)
    assert curve.add(_reading(accuracy=0.1)) is None
    assert curve.add(_reading(accuracy=0.2)) is None
    assert curve.values == {"accuracy": 0.2}
    assert curve.add(_reading(size=3.0)) == 0
    assert curve.values == {"accuracy": 0.2, "size": 3.0}


def test_later_report_takes_the_latest_of_each() -> None:
    curve = Curve(TWO)
    assert curve.add(_reading(1, accuracy=0.1, size=3.0)) == 1
    assert curve.add(_reading(2, accuracy=0.2)) == 2
    assert curve.values == {"accuracy": 0.2, "size": 3.0}


def test_fractions_of_a_step_are_counted() -> None:
    """The log lines of Hugging Face's Trainer, for one, are at epochs 0.5, 1.0, 1.5."""
    curve = Curve(ONE)
    steps = [curve.add(_reading(step, accuracy=1.0)) for step in (0.5, 1.0, 1.5, 2.0)]
    assert steps == [0, 1, 2, 3]
    assert curve.steps.fraction == 0.5


def test_a_step_with_another_objective_on_each_line_is_not_reported_twice() -> None:
    curve = Curve(TWO)
    for step in (1, 2):
        curve.add(_reading(step, accuracy=0.1))
        curve.add(_reading(step, size=3.0))
    assert curve.order.remark("") == ""
    curve.add(_reading(2, size=4.0))
    assert "reports step 2 twice" in curve.order.remark("")


def test_a_value_that_is_printed_again_is_not_reported_twice() -> None:
    """As the evaluation after the training of Hugging Face's examples."""
    curve = Curve(ONE)
    for step, accuracy in ((1.0, 0.1), (2.0, 0.2), (2.0, 0.2)):
        curve.add(_reading(step, accuracy=accuracy))
    assert curve.order.remark("") == ""


def test_counted_reports_are_never_reported_twice() -> None:
    curve = Curve(ONE)
    for step in (None, None, 0.5, 0.5):
        curve.add(_reading(step, accuracy=0.1))
    assert curve.order.remark("") == ""


def test_counting_begins_behind_the_whole_steps_before() -> None:
    curve = Curve(ONE)
    steps = [curve.add(_reading(step, accuracy=1.0)) for step in (1.0, 2.0, 2.5, 3.0)]
    assert steps == [1, 2, 3, 4]
    assert curve.steps.fraction == 2.5
