"""The page that compares, on a stored database and run by Streamlit without a browser."""

from __future__ import annotations

from optuna.distributions import FloatDistribution
from optuna.trial import create_trial

from tests.integration.app.charts import numbers_of
from tests.integration.app.pages import figures, opened
from tests.integration.stored_studies import seeded

_TIMEOUT_S = 30
_SCRIPT = "from tuner.app.views import compare, shell\nshell.sidebar()\ncompare.page()"


def test_a_link_restores_trials_with_their_differences_first(url: str) -> None:
    seeded.add_first_study(url)
    test = opened("compare", trials="0,1,3")
    table = test.dataframe[1].value
    assert list(table.columns) == ["", "trial 0", "trial 1", "trial 3"]
    rows = {row[""]: row for _, row in table.iterrows()}
    assert next(iter(rows)) == "lr"
    assert (rows["lr"]["trial 0"], rows["lr"]["trial 1"]) == ("0.001", "0.01")
    assert rows["outcome"]["trial 3"] == "out of memory"
    assert list(rows).index("outcome") < list(rows).index("epochs (same)")
    assert rows["attempts"]["trial 3"] == "2"
    # As the trial's own page has it.
    durations = {each.label: each.value for each in opened("trials", trial="0").metric}
    assert rows["duration"]["trial 0"] == durations["duration"]
    assert figures(test)[0]["data"][0]["name"] == "trial 0"
    assert test.query_params["trials"] == "0,1,3"


def test_fewer_than_two_and_missing_trials_are_said(url: str) -> None:
    seeded.add_first_study(url)
    test = opened("compare", trials="1,99")
    assert "no trial 99" in test.warning[0].value
    assert test.info[0].value == "Select 2 to 10 trials at their left."


def add_run(url: str, name: str, values: list[float], objective: str = "loss") -> None:
    trials = [
        create_trial(value=each, params={"x": 0.5}, distributions={"x": FloatDistribution(0, 1)})
        for each in values
    ]
    seeded.add_study(url, name, trials, directions=("minimize",), objectives=(objective,))


def test_studies_with_a_band_over_seeds(url: str) -> None:
    add_run(url, "run-1", [3.0, 1.0])
    add_run(url, "run-2", [5.0, 2.0])
    add_run(url, "else", [4.0, 4.0])
    add_run(url, "latency", [4.0, 4.0], "ms")
    test = opened("compare", studies=["run-1", "run-2", "else", "latency"])
    assert any(
        each.value == "Not drawn, without the objective loss (minimize): latency."
        for each in test.main.caption
    )
    traces = {each["name"]: each for each in figures(test)[0]["data"]}
    assert numbers_of(traces["run (median of 2)"]["y"]) == [4.0, 1.5]
    assert numbers_of(traces["run: highest"]["y"]) == [5.0, 2.0]
    assert "else" in traces
    test.main.toggle(key="band").set_value(False)
    test.run()
    names = [each["name"] for each in figures(test)[0]["data"]]
    assert names == ["run-1", "run-2", "else"]
