"""Searches of two objectives on recorded curves: what a front is worth, and who plays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from optuna.trial import TrialState

from benchmarks.search_quality.__main__ import main
from benchmarks.search_quality.by_rung import RungFedTPE
from benchmarks.search_quality.loop import Verdict, play
from benchmarks.search_quality.two_systems import AUTO, SYSTEMS, TunerSearch, seeded
from benchmarks.search_quality.two_tasks import (
    COSTS,
    Box,
    CostTask,
    Front,
    read_cost_task,
    weights_of,
)
from tests.integration.benchmarks.test_search_quality import N_STEPS, NAMES
from tuner.simulate.curves import Curve

UNIT = Box(worst=(0.0, 1.0), best=(1.0, 0.0))


@pytest.fixture
def curves(tmp_path: Path) -> Path:
    """The larger the momentum the better; a step takes a second for each layer."""
    rng = np.random.default_rng(0)
    low, high = [16, 1e-4, 0.1, 1e-5, 1, 64, 0], [512, 0.1, 0.99, 0.1, 5, 1024, 1]
    x = rng.uniform(low, high, size=(200, len(NAMES)))
    steps = np.arange(1.0, N_STEPS + 1)
    seconds = np.maximum(1.0, x[:, 4:5].round()) * steps
    path = tmp_path / "lcbench_1.npz"
    np.savez(path, names=np.array(NAMES), x=x, value=x[:, 2:3] * steps, seconds=seconds)
    return path


@pytest.fixture
def task(curves: Path) -> CostTask:
    return read_cost_task(curves, "weights")


def curve(n_steps: int, step_s: float) -> Curve:
    steps = np.arange(1.0, n_steps + 1)
    return Curve(values=steps, seconds=steps * step_s)


def test_a_parameter_that_is_left_out_has_its_least(curves: Path, task: CostTask) -> None:
    with_conditions = read_cost_task(curves, "weights", has_conditions=True)
    assert {each.name for each in with_conditions.space.parameters if each.when} == {
        *("momentum", "max_dropout", "weight_decay"),
    }
    row = dict(task.table.params(3))
    plain = {**row, "momentum": 0.1, "max_dropout": 0.0, "weight_decay": 1e-5}
    absent = {k: v for k, v in row.items() if k not in with_conditions.absent}
    chosen = {**absent, "optimizer": "plain", "regularization": "none"}
    assert with_conditions.train(chosen).values == task.train(plain).values
    assert with_conditions.train({**chosen, **row}).values == task.train(row).values


def test_no_other_way_is_played_with_two_objectives(
    curves: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([str(curves), "--second", "weights", "--spoilt", "turned5"])
    assert "can be conditional alone" in capsys.readouterr().err


# -- what a front is worth -------------------------------------------------------------------------


def test_a_front_is_worth_what_it_dominates() -> None:
    assert UNIT.share([]) == 0.0
    assert UNIT.share([(1.0, 0.0)]) == 1.0
    assert UNIT.share([(0.5, 0.5)]) == pytest.approx(0.25)
    assert UNIT.share([(0.5, 0.0), (1.0, 0.5)]) == pytest.approx(0.75)
    assert UNIT.share([(-1.0, 0.0), (0.5, 1.0)]) == 0.0, "outside of the box nothing counts"


def test_a_front_gets_better_where_it_grows() -> None:
    front = Front(UNIT)
    for at_s, value in enumerate([(0.5, 0.5), (0.4, 0.6), (0.5, 0.5), (-1.0, 0.0), (1.0, 0.9)]):
        front.take(float(at_s), value)
    assert [(each.at_s, round(each.value, 9)) for each in front.steps] == [(0.0, 0.25), (4.0, 0.3)]


def test_the_table_itself_has_no_regret(task: CostTask) -> None:
    assert task.regret(task.best) == 0.0
    assert task.regret(0.0) == 1.0
    assert task.regret(2.0 * task.best) == 0.0, "between the rows something may be better"


def test_the_cost_is_known_from_the_first_step(task: CostTask) -> None:
    params = task.table.params(0)
    recorded = task.train(params)
    assert [accuracy for accuracy, _ in recorded.values] == pytest.approx(
        task.table.curve(params).values
    )
    assert len({cost for _, cost in recorded.values}) == 1


def test_costs() -> None:
    small = {"num_layers": 1, "max_units": 64}
    # 20 inputs and 2 outputs, with a bias for each unit.
    assert 10 ** weights_of(small, curve(9, 1.0)) == pytest.approx(21 * 64 + 65 * 2)
    wide = weights_of({"num_layers": 1, "max_units": 128}, curve(9, 1.0))
    deep = weights_of({"num_layers": 3, "max_units": 128}, curve(9, 1.0))
    assert weights_of(small, curve(9, 1.0)) < wide < deep
    assert COSTS["seconds"](small, curve(9, 100.0)) == pytest.approx(2.0)


# -- searches --------------------------------------------------------------------------------------


#: By day: the default alone.
BY_NIGHT = [pytest.param(each, marks=pytest.mark.nightly) for each in SYSTEMS if each != AUTO]


@pytest.mark.parametrize("name", [AUTO, *BY_NIGHT])
def test_every_system_plays(task: CostTask, name: str) -> None:
    played = play(seeded(name, task, 1), task, n_workers=2, restart_s=0.5, n_medians=4.0)
    assert played.n_trials > 2
    assert played.reported
    assert played.completed


@pytest.mark.parametrize("name", [AUTO, "random + ASHA from 2", "tpe by rung + ASHA from 2"])
def test_the_seed_decides(task: CostTask, name: str) -> None:
    runs = [
        play(seeded(name, task, seed), task, n_workers=2, restart_s=0.5, n_medians=3.0)
        for seed in (1, 1, 2)
    ]
    assert runs[0].reported == runs[1].reported
    assert runs[0].reported != runs[2].reported


def test_weak_trials_pause_and_strong_ones_go_on(task: CostTask) -> None:
    search = seeded("random + ASHA from 1, promote", task, 0)
    verdicts = []
    for number, value in enumerate([(1.0, 0.0), (0.1, 3.0), (0.2, 2.0), (0.9, 0.1), (0.1, 3.0)]):
        assert search.next().trial == number
        verdicts.append(search.report(number, 1, value, held_s=1.0))
    # The first passes, because nobody was paused yet.
    assert verdicts == [Verdict.GO_ON, *[Verdict.PAUSE] * 4]
    assert search.next().trial == 5
    assert search.report(5, 1, (0.0, 4.0), held_s=1.0) is Verdict.PAUSE
    assert search.next().trial == 3, "the second of six"
    assert search.report(3, 2, (1.0, 0.0), held_s=1.0) is Verdict.GO_ON


def test_a_rung_shows_both_objectives(task: CostTask) -> None:
    search = seeded("tpe by rung + ASHA from 2", task, 0)
    assert isinstance(search, TunerSearch)
    for number in range(3):
        search.next()
        search.report(number, 2, (float(number), 1.0), held_s=1.0)
    fed = search.study.sampler
    assert isinstance(fed, RungFedTPE)
    shown = fed.shown(search.study)
    assert [each.values for each in shown] == [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]
    assert {each.state for each in shown} == {TrialState.COMPLETE}


# -- the command -----------------------------------------------------------------------------------


def test_the_command_names_the_second_objective(curves: Path, tmp_path: Path) -> None:
    output, kept = tmp_path / "figures.json", tmp_path / "kept.jsonl"
    words = ["--second", "seconds", "--systems", "random", "--workers", "2", "--seeds", "1"]
    words += ["--jobs", "1", "--kept", str(kept)]
    main([str(curves), *words, "--output", str(output)])
    assert [each["task"] for each in json.loads(output.read_text())["results"]] == ["1, seconds"]
    words[1] = "weights"
    main([str(curves), *words])
    assert len(kept.read_text().splitlines()) == 2, "another objective is another search"


def test_a_system_that_is_not_known_is_refused(
    curves: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([str(curves), "--second", "seconds", "--systems", "Ray Tune, random + ASHA"])
    assert "--systems has 'Ray Tune, random + ASHA', but must be of: random," in (
        capsys.readouterr().err
    )
