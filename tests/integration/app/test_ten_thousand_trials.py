"""Every page on a study of ten thousand trials with curves, run by Streamlit without a browser."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from streamlit.testing.v1 import AppTest

from benchmarks.database.stored import STUDY, make_study
from tests.integration.app.pages import figures, opened, show_database
from tests.integration.stored_studies import seeded
from tuner.app.charts.parameters import MAX_TRIALS, Kind
from tuner.app.data.devices.timeline import MAX_BARS_OF_A_DEVICE
from tuner.app.data.trials.curves import MAX_CURVES
from tuner.domain.attempt import Outcome
from tuner.store.schema.models import AttemptRow

N_TRIALS, N_REPORTS = 10_000, 10
#: Every third one, from the second on.
N_PRUNED = 3_333
_TIMEOUT_S = 300


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a database that no test changes, written in a few statements."""
    url = f"sqlite:///{tmp_path_factory.mktemp('large')}/study.db"
    make_study(url, N_TRIALS, N_REPORTS)
    with seeded.writing(url) as connection:
        connection.execute(sa.text("UPDATE trials SET state = 'PRUNED' WHERE number % 3 = 1"))
        pruned = sa.text("trial_id IN (SELECT trial_id FROM trials WHERE number % 3 = 1)")
        connection.execute(sa.update(AttemptRow).where(pruned).values(outcome=Outcome.PRUNED))
    return url


@pytest.fixture(autouse=True)
def _shown(large: str, monkeypatch: pytest.MonkeyPatch) -> None:
    show_database(monkeypatch, large)


def shown(page: str, **address: str) -> AppTest:
    return opened(page, timeout_s=_TIMEOUT_S, **address)


def captions(test: AppTest) -> str:
    return " ".join(each.value for each in test.main.caption)


def test_studies() -> None:
    table = shown("studies").dataframe[0].value
    assert list(table["study"]) == [f"convergence?study={STUDY}"]
    assert [each.split()[0] for each in table["trials"]] == [str(N_TRIALS)]


@pytest.mark.parametrize("against", ["trials", "wall time", "device-hours"])
def test_convergence(against: str) -> None:
    test = shown("convergence", against=against, forecast="true")
    assert [each.value for each in test.metric][1:3] == [str(N_TRIALS), "0"]
    (figure,) = figures(test)
    names = {trace["name"]: trace for trace in figure["data"]}
    assert set(names) == {"completed", "pruned", "best so far"}
    # As SVG so many points take a browser seconds.
    assert names["completed"]["type"] == names["pruned"]["type"] == "scattergl"


def test_learning_curves() -> None:
    test = shown("curves", trial="7")
    assert f"curves of {N_TRIALS} trials" in captions(test)
    (figure,) = figures(test)
    assert len(figure["data"]) <= MAX_CURVES + 10
    assert any(trace["name"] == "trial 7" for trace in figure["data"])


@pytest.mark.parametrize("view", ["trials", "steps", "distribution", "trials per hour"])
def test_metrics(view: str) -> None:
    test = shown("metrics", view=view)
    (figure,) = figures(test)
    if view == "trials":
        assert {trace["type"] for trace in figure["data"]} == {"scattergl"}
    if view == "steps":
        assert f"of {N_TRIALS} trials: of the 20 best, the 20 newest" in captions(test)
        assert len(figure["data"]) <= 60


@pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.value)
def test_parameters(kind: Kind) -> None:
    test = shown("parameters", figure=kind.value)
    n_completed, said = N_TRIALS - N_PRUNED, captions(test)
    assert f"{n_completed} of {N_TRIALS} trials: those that are completed." in said
    assert f"Drawn: {MAX_TRIALS[kind]} of these {n_completed} trials, the best" in said
    assert len(figures(test)) == 2


def test_trials() -> None:
    test = shown("trials")
    assert len(test.dataframe[0].value) == N_TRIALS
    test = shown("trials", outcome="pruned", where="width < 100")
    (table,) = (each.value for each in test.dataframe)
    assert 0 < len(table) < N_PRUNED
    assert set(table["outcome"]) == {"pruned"}
    assert table["width"].max() < 100


def test_one_trial() -> None:
    test = shown("trials", trial="9999")
    assert test.title[0].value == "Trial 9999"
    assert "Attempt 1" in [each.value for each in test.subheader]


def test_devices() -> None:
    test = shown("devices")
    (totals,) = (each.value for each in test.dataframe)
    assert list(totals["attempts"]) == [N_TRIALS]
    (timeline, *_) = figures(test)
    # What a screen can't show apart is one bar.
    n_bars = sum(len(trace["customdata"]) for trace in timeline["data"])
    assert 0 < n_bars <= MAX_BARS_OF_A_DEVICE + 2


def test_best() -> None:
    texts = [each.value for each in shown("best", n="3").code]
    assert texts[0].count("- study: bench") == 3


def test_control() -> None:
    assert "read-only" in shown("control").info[0].value
