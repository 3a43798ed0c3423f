"""The page Metrics says what the database holds: each value, and how many have none."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial
from streamlit.testing.v1 import AppTest

from tests.integration.app.charts import numbers_of
from tests.integration.app.pages import figures, opened, show_database
from tests.integration.app.paused_study import PausedStudy
from tests.integration.stored_studies import seeded
from tuner.store.schema.models import MetricRow


def captions(test: AppTest) -> str:
    return " ".join(each.value for each in test.main.caption)


def points(test: AppTest) -> dict[int, tuple[float, float]]:
    """By the number of the trial."""
    found = {}
    for trace in figures(test)[0]["data"]:
        columns = (numbers_of(trace[each]) for each in ("customdata", "x", "y"))
        found.update({number: (x, y) for number, x, y in zip(*columns, strict=True)})
    return found


def add_plain(url: str) -> None:
    """A study that Optuna has written alone: no table of ours says anything of it."""
    x = FloatDistribution(0, 1)
    trials = [
        create_trial(
            value=10.0 - n,
            params={"x": n / 10},
            distributions={"x": x},
            user_attrs={"latency_ms": 100 * n, "host": "a", "is_ok": True},
            intermediate_values={1: 10.0, 2: 10.0 - n},
        )
        for n in range(3)
    ]
    trials.append(
        create_trial(
            state=TrialState.PRUNED,
            value=8.0,
            params={"x": 0.9},
            distributions={"x": x},
            intermediate_values={1: float("inf"), 2: 8.0},
        )
    )
    trials.append(create_trial(state=TrialState.FAIL))
    seeded.add_study(url, "plain", trials, space=None, directions=("minimize",))


def test_attributes_parameters_and_values_against_each_other(url: str) -> None:
    add_plain(url)
    test = opened("metrics", metric_y="latency_ms", metric_x="x")
    assert points(test) == {n: (n / 10, 100.0 * n) for n in range(3)}
    assert "2 of 5 trials have no finite value of latency" in captions(test)
    names = list(test.main.selectbox(key="metric_y").options)
    assert names[0] == "value"
    assert {"latency_ms", "x", "reports", "duration (s)", "trial (number)"} <= set(names)
    # Text and truth values are no numbers.
    assert not {"host", "is_ok"} & set(names)
    axes = figures(test)[0]["layout"]
    assert axes["xaxis"]["title"]["text"] == "x"
    assert axes["yaxis"]["title"]["text"] == "latency_ms"


def test_distribution_counts_who_has_a_value(url: str) -> None:
    add_plain(url)
    test = opened("metrics", view="distribution")
    lines = {each["name"]: each for each in figures(test)[0]["data"]}
    # A pruned trial has the value of its last report.
    assert set(lines) == {"all with a value (4)", "completed (3)"}
    assert numbers_of(lines["completed (3)"]["x"]) == [8.0, 9.0, 10.0]
    assert numbers_of(lines["completed (3)"]["y"]) == pytest.approx([100 / 3, 200 / 3, 100.0])
    assert numbers_of(lines["all with a value (4)"]["x"]) == [8.0, 8.0, 9.0, 10.0]
    assert "1 of 5 trials has no finite value of value." in captions(test)


def test_curves_are_smoothed_over_what_was_reported(url: str) -> None:
    add_plain(url)
    test = opened("metrics", view="steps", smoothing="0.5")
    traces = [each for each in figures(test)[0]["data"] if each["legendgroup"] == "2"]
    assert [numbers_of(each["y"]) for each in traces] == [[10.0, 8.0], [10.0, (2.5 + 4.0) / 0.75]]
    assert "Left out: 1 report of value, infinite or NaN." in captions(test)
    assert "moving average of weight 0.5" in figures(test)[0]["layout"]["yaxis"]["title"]["text"]


def test_metrics_of_the_tuner_are_the_last_reports(url: str) -> None:
    seeded.add_first_study(url)
    with seeded.writing(url) as connection:
        ids = connection.execute(
            sa.text(
                "SELECT a.id, t.number FROM tuner_attempts a JOIN trials t USING (trial_id) "
                "ORDER BY a.id"
            )
        ).all()
        # The second attempt of trial 3 reports step 1 again: it replaces the first one's step 5.
        for place, (attempt_id, _number) in enumerate(ids):
            for step, value in ((1, 0.1 * place), (2, float(place))):
                row = {"attempt_id": attempt_id, "step": step, "name": "f1", "value": value}
                connection.execute(sa.insert(MetricRow).values(**row))
    expected = {number: float(place) for place, (_, number) in enumerate(ids)}
    test = opened("metrics", metric_y="f1")
    assert {number: y for number, (_, y) in points(test).items()} == expected
    # The last loss of each attempt is NaN: no trial has a value of it.
    assert "loss" not in test.main.selectbox(key="metric_y").options
    assert "loss" in opened("metrics", view="steps").main.selectbox(key="metric").options


def test_rate_says_how_many_ended(url: str) -> None:
    seeded.add_first_study(url)
    test = opened("metrics", view="trials per hour")
    with seeded.looking(url) as connection:
        ended = "SELECT count(*) FROM trials WHERE state IN ('COMPLETE', 'PRUNED', 'FAIL')"
        n = connection.execute(sa.text(ended)).scalar_one()
    assert f"{n} trials ended in" in captions(test)
    bars = [numbers_of(trace["customdata"]) for trace in figures(test)[0]["data"]]
    assert sum(row for trace in bars for row in trace[::2]) == n


def test_paused_trials_count_with_their_last_report(paused_study: PausedStudy, monkeypatch) -> None:
    url = f"sqlite:///{paused_study.middle}"
    show_database(monkeypatch, url)
    test = opened("metrics", metric_x="epochs")
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        n_paused = connection.execute(
            sa.text(
                "SELECT count(*) FROM trials JOIN trial_system_attributes USING (trial_id) "
                "WHERE state = 'WAITING' AND key = 'tuner:paused' AND value_json <> 'null'"
            )
        ).scalar_one()
    engine.dispose()
    assert f"{n_paused} drawn trials are paused, at the last report." in captions(test)
    names = [each["name"] for each in figures(test)[0]["data"]]
    assert "paused" in names


def test_study_without_trials_says_so(url: str) -> None:
    seeded.add_study(url, "empty", [])
    for view in ("trials", "steps", "distribution", "trials per hour"):
        assert len(opened("metrics", view=view).main.info) == 1
