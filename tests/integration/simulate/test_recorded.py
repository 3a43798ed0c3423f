"""An earlier study of the user's own database as the curves of a simulation."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from tests.integration.stored_studies import seeded
from tuner.config import Direction
from tuner.errors import ConfigError, StoreError
from tuner.search_spaces import SearchSpace, parse_space
from tuner.simulate.command import simulate_study
from tuner.simulate.recorded import RecordedCurves, read_recorded

LR = optuna.distributions.FloatDistribution(1e-4, 1.0, log=True)
KIND = optuna.distributions.CategoricalDistribution(["sgd", "adamw"])
SPACE = parse_space(
    {
        "lr": {"type": "float", "low": 1e-4, "high": 1.0, "log": True},
        "kind": {"type": "categorical", "choices": ["sgd", "adamw"]},
    }
)
BEGIN = datetime(2026, 1, 1)
STUDY = """
study: next
storage: sqlite:///study.db
objectives: {accuracy: maximize}
trial: {function: "m:f"}
search_space:
  lr: {type: float, low: 1.0e-4, high: 1.0, log: true}
  kind: {type: categorical, choices: [sgd, adamw]}
sampler: {name: random}
budget: {trials: 12}
"""


def a_trial(
    lr: float, kind: str, reports: dict[int, float], *, is_whole: bool = True, took_s: float = 60.0
) -> FrozenTrial:
    trial = create_trial(
        state=TrialState.COMPLETE if is_whole else TrialState.PRUNED,
        value=max(reports.values(), default=0.5),
        params={"lr": lr, "kind": kind},
        distributions={"lr": LR, "kind": KIND},
        intermediate_values=reports,
    )
    trial.datetime_start, trial.datetime_complete = BEGIN, BEGIN + timedelta(seconds=took_s)
    return trial


def earlier(url: str) -> None:
    """Reports come at steps 10, 20 and 30; one that was pruned came to 10."""
    seeded.add_study(
        url,
        "earlier",
        [
            a_trial(1e-3, "sgd", {10: 0.1, 20: 0.4, 30: 0.3}),
            a_trial(1e-1, "sgd", {10: 0.2, 20: 0.5, 30: 0.6}, took_s=90.0),
            a_trial(1e-1, "adamw", {10: 0.05}, is_whole=False, took_s=20.0),
            create_trial(state=TrialState.FAIL),
            create_trial(value=0.4, params={"lr": 0.1}, distributions={"lr": LR}),
        ],
    )


def recorded(url: str, *, whole_only: bool = False) -> RecordedCurves:
    assert isinstance(SPACE, SearchSpace)
    place = seeded.place(url, "earlier")
    return read_recorded(place, SPACE, Direction.MAXIMIZE, whole_only=whole_only)


def test_nearest_configuration_answers_as_it_was_recorded(url: str) -> None:
    earlier(url)
    curves = recorded(url)
    assert (curves.n_whole, curves.n_cut, curves.n_left_out) == (2, 1, 2)
    near = curves.curve({"lr": 2e-1, "kind": "sgd"})
    assert near.values.tolist() == [0.2, 0.5, 0.6]
    assert near.seconds.tolist() == pytest.approx([30.0, 60.0, 90.0])
    assert [near.step(place) for place in (1, 2, 3)] == [10, 20, 30]
    assert curves.curve({"lr": 2e-3, "kind": "sgd"}).end == 0.4, "what it had returned"
    # One of two parameters differs wholly, the other not at all.
    assert curves.curve({"lr": 1e-3, "kind": "adamw"}).is_whole is False
    assert 0.0 < curves.median_distance < 1.0


def test_whole_curves_alone(url: str) -> None:
    earlier(url)
    curves = recorded(url, whole_only=True)
    assert (curves.n_whole, curves.n_cut, curves.n_left_out) == (2, 0, 3)
    assert curves.curve({"lr": 1e-1, "kind": "adamw"}).is_whole


def test_time_is_that_of_the_attempts_where_there_are_any(url: str) -> None:
    earlier(url)
    of = seeded.add_dispatcher(url, "earlier", is_ended=True)
    seeded.add_attempt(url, of, 0)
    row = recorded(url).curve({"lr": 1e-3, "kind": "sgd"})
    assert row.seconds[-1] != pytest.approx(60.0)


def test_other_direction_is_refused(url: str) -> None:
    earlier(url)
    assert isinstance(SPACE, SearchSpace)
    with pytest.raises(ConfigError, match="objectives to maximize, but the study file's is to min"):
        read_recorded(seeded.place(url, "earlier"), SPACE, Direction.MINIMIZE, whole_only=False)


def test_study_of_another_program_is_refused(url: str) -> None:
    earlier(url)
    space = parse_space({"depth": {"type": "int", "low": 1, "high": 4}})
    assert isinstance(space, SearchSpace)
    with pytest.raises(ConfigError, match="has 0 of 5 trials with a curve"):
        read_recorded(seeded.place(url, "earlier"), space, Direction.MAXIMIZE, whole_only=False)


def test_verb_plays_a_study_and_says_what_that_means(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    earlier(url)
    (tmp_path / "study.yaml").write_text(STUDY)
    options = {
        "n_devices": 2,
        "n_seeds": 1,
        "pruners": ["none", "asha"],
        "restart_s": 5.0,
        "picture": None,
        "environ": {},
    }
    runs = simulate_study(tmp_path / "study.yaml", "earlier", **options)  # type: ignore[arg-type]
    out = capsys.readouterr().out
    assert "curves: 2 completed and 1 pruned trials of the study (2 left out)" in out
    assert "taken to last equally long" in out
    none, _ = runs
    assert none.n_trials == 12
    assert none.n_cut_short == 12 - none.n_completed > 0
    assert "ended where their recording does" in out
    assert none.best[-1].value == 0.6
    whole = simulate_study(
        tmp_path / "study.yaml",
        "earlier",
        whole_only=True,
        **options,  # type: ignore[arg-type]
    )
    assert whole[0].n_completed == 12
    assert "ended where their recording does" not in capsys.readouterr().out


def test_study_that_is_not_there_is_named(tmp_path: Path) -> None:
    earlier(f"sqlite:///{tmp_path}/study.db")
    (tmp_path / "study.yaml").write_text(STUDY)
    with pytest.raises(StoreError, match=r"no study 'earlyer'.*Did you mean 'earlier'"):
        simulate_study(
            tmp_path / "study.yaml",
            "earlyer",
            n_devices=1,
            n_seeds=1,
            pruners=["none"],
            restart_s=0.0,
            picture=None,
            environ={},
        )


def test_whole_is_not_for_a_table(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    with pytest.raises(ConfigError, match="--whole is for curves of an earlier study"):
        simulate_study(
            tmp_path / "study.yaml",
            "x.npz",
            n_devices=1,
            n_seeds=1,
            pruners=["none"],
            restart_s=0.0,
            picture=None,
            environ={},
            whole_only=True,
        )
