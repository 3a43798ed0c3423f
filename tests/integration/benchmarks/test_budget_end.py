"""The rules for the last trials of a budget of time are played by the dispatcher itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.search_cases import parts_of_time
from benchmarks.search_cases.budget_end import RULES, main, play_one
from benchmarks.search_cases.ideal_stopping import IdealStopping, judged, searches
from benchmarks.search_quality.spaces import LCBENCH_SPACE
from benchmarks.search_quality.tasks import Task, read_task
from tuner.dispatch.supply.budget_end import BudgetEnd

N_STEPS = 9


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """The larger the momentum the better; a step takes ten seconds."""
    rng = np.random.default_rng(0)
    low, high = np.array([[each["low"], each["high"]] for each in LCBENCH_SPACE.values()]).T
    x = rng.uniform(low, high, size=(200, len(LCBENCH_SPACE)))
    np.savez(
        tmp_path / "lcbench_1.npz",
        names=np.array([*LCBENCH_SPACE]),
        x=x,
        value=x[:, 2:3] * np.arange(1, N_STEPS + 1),
        seconds=np.tile(10.0 * np.arange(1.0, N_STEPS + 1), (200, 1)),
    )
    return read_task(tmp_path / "lcbench_1.npz")


@pytest.mark.slow
def test_pruned_trials_begin_where_whole_trainings_no_longer_fit(task: Task) -> None:
    found = {
        name: play_one(task, sampler="random", seed=0, rule=rule, n_devices=2)
        for name, rule in RULES.items()
    }
    assert found["completed"].n_trials < found["ended"].n_trials <= found["all"].n_trials
    assert found["completed"].used < found["ended"].used
    assert found["ended"].makespan < 1.1, "no trial takes more than a tenth of the time"
    assert found["ended"].after <= found["ended"].at_limit <= found["ended"].before


@pytest.mark.slow
def test_a_table_has_a_row_for_each_rule(task: Task, capsys: pytest.CaptureFixture[str]) -> None:
    present = BudgetEnd.too_little
    main([str(task.path), "--seeds", "2", "--sampler", "random", "--rules", "completed", "ended"])
    out = capsys.readouterr().out
    assert "| completed |" in out
    assert "regret, ended less completed: " in out
    assert BudgetEnd.too_little is present


def test_who_knows_how_trials_end_stops_all_but_better_ones(task: Task) -> None:
    asha, ideal = searches(task, "random", 0).values()
    known = judged(task, ideal, "ideal", 0, n_medians=4.0)
    assert known.area <= judged(task, asha, "asha", 0, n_medians=4.0).area
    assert isinstance(ideal, IdealStopping)
    trials = ideal.inner.study.trials
    ends = [task.train(each.params).values[-1] for each in trials]
    whole = [each.number for each in trials if len(each.intermediate_values) > 1]
    best = [k for k, end in enumerate(ends) if end > max(ends[:k], default=-1.0)]
    assert set(whole) <= set(best)
    assert len(whole) < len(trials)


def test_who_draws_from_the_best_share_has_less_regret_in_each_part_of_the_time(
    task: Task, capsys: pytest.CaptureFixture[str]
) -> None:
    parts_of_time.main([str(task.path), "--systems", "1.0", "0.05", "--seeds", "2"])
    lines = capsys.readouterr().out.splitlines()
    rows = [[float(cell) for cell in line.split("|")[2:-1]] for line in lines if "drawn" in line]
    assert all(better <= worse for worse, better in zip(*rows, strict=True))
    *parts, area, end = rows[0]
    widths = np.diff([0.0, *parts_of_time.ENDS])
    assert area == pytest.approx(float(widths @ parts), abs=2e-3)
    assert end <= parts[-1]
