"""What is chosen on a page stands in its address, and a link with it shows the same again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import optuna
import pytest
from optuna.trial import create_trial
from streamlit.testing.v1 import AppTest

from tests.databases import new_database
from tests.integration.app.pages import fine, opened, show_database
from tests.integration.stored_studies import seeded

_FLOAT = optuna.distributions.FloatDistribution(0, 1)
#: By page: what stands in its address, as Streamlit writes it.
LINKS: tuple[tuple[str, dict[str, str | list[str]]], ...] = (
    ("convergence", {"against": "wall time", "log_x": "true"}),
    ("convergence", {"against": "device-hours", "objective": "latency"}),
    ("convergence", {"beside": "other", "log_y": "true", "forecast": "true"}),
    ("convergence", {"front": ["size", "latency"]}),
    ("curves", {"log_step": "true", "log_value": "true", "trial": "2"}),
    ("parameters", {"figure": "slices", "objective": "latency"}),
    ("parameters", {"figure": "contour", "parameter": ["z", "x"]}),
    ("parameters", {"figure": "rank"}),
    ("devices", {"last": "6 h", "colour": "trial", "heat": "memory", "all_studies": "true"}),
    ("trials", {"outcome": "completed", "where": "x > 0.1"}),
    ("best", {"n": "3"}),
)


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a database that no test changes: two studies of three objectives, one of two."""
    url = new_database(tmp_path_factory.mktemp("links"))
    for name in ("other", "shown"):
        trials = [
            create_trial(
                values=[1.0 + at, 9.0 - at, float(at % 3)],
                params={"x": 0.1 * at, "y": 0.5 + 0.01 * at**2, "z": (0.37 * at) % 1},
                distributions={"x": _FLOAT, "y": _FLOAT, "z": _FLOAT},
                intermediate_values={step: at + step for step in (1, 2, 3)},
            )
            for at in range(8)
        ]
        seeded.add_study(
            url,
            name,
            trials,
            directions=("maximize", "minimize", "minimize"),
            objectives=("accuracy", "latency", "size"),
        )
        seeded.add_attempt(url, seeded.add_dispatcher(url, name, is_ended=True), 0)
    seeded.add_study(
        url,
        "of two",
        [create_trial(values=[1.0, 2.0])],
        directions=("maximize", "minimize"),
        objectives=("score", "cost"),
    )
    return url


@pytest.fixture(autouse=True)
def _shown(studies: str, monkeypatch: pytest.MonkeyPatch) -> None:
    show_database(monkeypatch, studies)


def seen(test: AppTest) -> list[Any]:
    """What people see, but for what the widgets themselves show."""
    components = [json.loads(each.proto.json) for each in test.get("bidi_component")]
    tables = [each.value.to_csv() for each in test.dataframe]
    texts = [each.value for kind in ("title", "subheader", "code") for each in test.get(kind)]
    return [*(json.loads(each["figure"]) for each in components), *tables, *texts]


def widgets(test: AppTest) -> dict[str, Any]:
    """By key, in the order of the page."""
    kinds = ("button_group", "toggle", "selectbox", "multiselect", "number_input", "text_input")
    return {each.key: each for kind in kinds for each in test.get(kind) if each.key}


@pytest.mark.parametrize(
    ("page", "address"), LINKS, ids=[f"{page} {', '.join(told)}" for page, told in LINKS]
)
def test_a_link_shows_what_was_chosen(page: str, address: dict[str, str | list[str]]) -> None:
    study = {"study": "shown"}
    plain, linked = opened(page, **study), opened(page, **study | address)
    assert linked.query_params == study | address
    assert seen(linked) != seen(plain)
    choose(plain, widgets(linked))
    assert seen(plain) == seen(linked)


def choose(test: AppTest, wanted: Mapping[str, Any]) -> None:
    """As somebody on the page does; some widgets come when others have been used."""
    for key, value in wanted.items():
        now = widgets(test)
        if key in now and now[key].value != value.value:
            now[key].set_value(value.value)
            fine(test.run())


@pytest.mark.parametrize("page", ["convergence", "parameters", "devices", "trials", "best"])
def test_what_is_no_choice_is_left_out(page: str) -> None:
    strange = {"against": "money", "objective": "no such", "beside": "none", "figure": "pie"}
    strange |= {"last": "9 h", "heat": "", "log_x": "perhaps", "outcome": "odd", "n": "-3"}
    study = {"study": "shown"}
    assert seen(opened(page, **study | strange)) == seen(opened(page, **study))


def test_a_choice_of_another_study_is_left_out() -> None:
    test = opened("convergence", study="shown", objective="latency", beside="of two")
    assert test.metric[0].label == "best latency"
    test.selectbox(key="study").set_value("of two")
    assert fine(test.run()).metric[0].label == "best score"
