"""A grid tries each of its points once, however often the study is continued and by how many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import optuna
import pytest

from tests.databases import ONE_SERVER_BY_DAY
from tests.e2e.dispatchers.test_fleet import trials_of
from tests.e2e.study_folder import StudyFolder, wait_until
from tests.servers import Server
from tuner.errors import EXIT_BUDGET_REACHED

ECHO = {"command": ["sh", "-c", "echo '{{\"value\": {width}}}'"]}
#: The point that is told in the command's arguments fails.
FAILS = {"command": ["sh", "-c", "[ {width}{kind} != 2a ] && echo '{{\"value\": {width}}}'"]}
#: 12 points.
SPACE = {
    "width": {"type": "int", "low": 1, "high": 4},
    "kind": {"type": "categorical", "choices": ["a", "b", "c"]},
}
POINTS = {(width, kind) for width in range(1, 5) for kind in "abc"}
EXHAUSTED = "every configuration of the space was tried"


def a_grid(folder: StudyFolder, **keys: object) -> None:
    folder.study(
        **{
            "trial": ECHO,
            "search_space": SPACE,
            "sampler": "grid",
            "pruner": "none",
            "storage": "sqlite:///small.db",
            **keys,
        }
    )


def points_of(folder: StudyFolder) -> list[tuple[int, str]]:
    """Of each trial, by number."""
    storage = f"sqlite:///{folder.path / 'small.db'}"
    trials = optuna.load_study(study_name="small", storage=storage).trials
    return [(trial.params["width"], trial.params["kind"]) for trial in trials]


def test_a_continued_grid_tries_each_point_once(study_folder: StudyFolder) -> None:
    a_grid(study_folder)
    first = study_folder.tune("--trials", "6")
    assert (first.code, first.err) == (EXIT_BUDGET_REACHED, "")
    rest = study_folder.tune("--trials", "100")
    assert (rest.code, rest.err) == (EXIT_BUDGET_REACHED, "")
    assert EXHAUSTED in rest.out
    points = points_of(study_folder)
    assert len(points) == 12
    assert set(points) == POINTS
    again = study_folder.tune("--trials", "100")
    assert (again.code, again.err) == (EXIT_BUDGET_REACHED, "")
    assert EXHAUSTED in again.out
    assert len(points_of(study_folder)) == 12
    assert f"finished ({EXHAUSTED})" in study_folder.tuner("status", "study.yaml").out


def test_a_grid_has_one_order_however_often_it_is_continued(study_folder: StudyFolder) -> None:
    a_grid(study_folder, sampler={"name": "grid", "seed": 3}, devices="cpu:1")
    assert study_folder.tune("--trials", "12").code == EXIT_BUDGET_REACHED
    whole = points_of(study_folder)
    (study_folder.path / "small.db").unlink()
    for n_trials in ("3", "4", "12"):
        assert study_folder.tune("--trials", n_trials).code == EXIT_BUDGET_REACHED
    assert points_of(study_folder) == whole


def test_points_that_were_enqueued_or_failed_are_not_tried_again(
    study_folder: StudyFolder,
) -> None:
    a_grid(study_folder, trial={**FAILS, "retries": 0}, devices="cpu:1")
    enqueued = study_folder.tuner("enqueue", "--params", "{width: 3, kind: b}")
    assert enqueued.code == 0, enqueued.text
    # Of a point that is named in part, the rest is one that was not tried.
    partly = study_folder.tuner("enqueue", "--params", "{width: 4}")
    assert partly.code == 0, partly.text
    assert study_folder.tune("--trials", "7").code == EXIT_BUDGET_REACHED
    assert points_of(study_folder)[0] == (3, "b")
    assert points_of(study_folder)[1][0] == 4
    rest = study_folder.tune("--trials", "100")
    assert rest.code == EXIT_BUDGET_REACHED
    assert EXHAUSTED in rest.out
    points = points_of(study_folder)
    assert (len(points), set(points)) == (12, POINTS)
    assert Counter(study_folder.states()) == {"COMPLETE": 11, "FAIL": 1}
    # Whoever wants a point again says so, and the study takes it up, exhausted or not.
    failed = study_folder.states().index("FAIL")
    assert study_folder.tuner("retry", "--trial", str(failed)).code == 0
    assert study_folder.tune("--trials", "100").code == EXIT_BUDGET_REACHED
    assert Counter(points_of(study_folder))[2, "a"] == 2
    assert len(points_of(study_folder)) == 13


def test_a_grid_of_an_objective_that_suggests_itself(study_folder: StudyFolder) -> None:
    """A program's own space, with values of several types, and one that it asks for rarely."""
    study_folder.write(
        "objective.py",
        "def objective(trial):\n"
        "    flag = trial.suggest_categorical('flag', [True, False, 1.5, None])\n"
        "    rate = trial.suggest_float('rate', 0.01, 1.0, log=True)\n"
        "    return rate + (0 if flag is True else trial.suggest_int('depth', 1, 9))\n",
    )
    grid = {"flag": [True, False, None], "rate": [0.1, 1], "depth": [2, 3]}
    a_grid(
        study_folder,
        trial={"function": "objective:objective"},
        search_space=None,
        sampler={"name": "grid", "search_space": grid},
    )
    for n_trials in ("5", "100"):
        ended = study_folder.tune("--trials", n_trials)
        assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert EXHAUSTED in ended.out
    assert len(study_folder.states()) == 12
    storage = f"sqlite:///{study_folder.path / 'small.db'}"
    trials = optuna.load_study(study_name="small", storage=storage).trials
    tried = Counter((t.params["flag"], t.params["rate"], t.params.get("depth")) for t in trials)
    assert tried == {
        **{(True, rate, None): 2 for rate in (0.1, 1.0)},
        **{(flag, rate, n): 1 for flag in (False, None) for rate in (0.1, 1.0) for n in (2, 3)},
    }


@pytest.fixture(params=ONE_SERVER_BY_DAY)
def shared(request: pytest.FixtureRequest, study_folder: StudyFolder) -> Iterator[StudyFolder]:
    server: Server = request.getfixturevalue(request.param)
    url = server.new_database()
    study_folder.env["STORAGE"] = url
    yield study_folder
    study_folder.end_all()
    server.drop_database(url)


def test_several_dispatchers_on_one_grid(shared: StudyFolder) -> None:
    width = {"type": "int", "low": 1, "high": 20}
    a_grid(
        shared, search_space={**SPACE, "width": width}, storage="${STORAGE}", budget={"trials": 99}
    )
    fleet = [shared.start("--trials", "25") for _ in range(3)]
    assert [one.wait().code for one in fleet] == [EXIT_BUDGET_REACHED] * 3
    fleet = [shared.start() for _ in range(3)]
    ended = [one.wait() for one in fleet]
    assert [one.code for one in ended] == [EXIT_BUDGET_REACHED] * 3
    assert all(EXHAUSTED in one.out for one in ended)
    points = [(trial.params["width"], trial.params["kind"]) for trial in trials_of(shared)]
    assert len(points) == 60
    assert len(set(points)) == 60


SOBOL = {"x": {"type": "float", "low": 0, "high": 1}, "y": {"type": "float", "low": 0, "high": 1}}
TOUCH = {"command": ["sh", "-c", "echo '{{\"value\": {x}}}'"]}
QMC = {"name": "qmc", "scramble": True}


def places_of(trials: list[optuna.trial.FrozenTrial]) -> list[tuple[float, float]]:
    return [(trial.params["x"], trial.params["y"]) for trial in trials]


@pytest.mark.nightly
def test_a_scrambled_sequence_goes_on_where_it_ended(study_folder: StudyFolder) -> None:
    a_grid(
        study_folder,
        trial=TOUCH,
        search_space=SOBOL,
        sampler={**QMC, "seed": 5},
        devices="cpu:1",
    )
    storage = f"sqlite:///{study_folder.path / 'small.db'}"
    for name, starts in {"whole": ["17"], "parts": ["4", "5", "17"]}.items():
        for n_trials in starts:
            ended = study_folder.tune("--study", name, "--trials", n_trials)
            assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    whole, parts = (
        places_of(optuna.load_study(study_name=name, storage=storage).trials)
        for name in ("whole", "parts")
    )
    assert whole == parts


@pytest.mark.nightly
def test_a_scrambled_sequence_that_several_dispatchers_share(shared: StudyFolder) -> None:
    a_grid(
        shared,
        trial=TOUCH,
        search_space=SOBOL,
        sampler=QMC,
        storage="${STORAGE}",
        budget={"trials": 33},
    )
    # The first trial alone is drawn at random, and tells Optuna the space.
    assert shared.tune("--trials", "1", "--set", "devices=cpu:1").code == EXIT_BUDGET_REACHED
    fleet = [shared.start() for _ in range(3)]
    wait_until(lambda: len(trials_of(shared)) == 33, "all are begun")
    assert [one.wait().code for one in fleet] == [EXIT_BUDGET_REACHED] * 3
    places = places_of(trials_of(shared))[1:]
    # 32 successive points of a scrambled Sobol sequence have one in each 32nd of each axis.
    for axis in range(2):
        assert sorted(int(place[axis] * 32) for place in places) == list(range(32))
