"""Searches that are played on recorded curves: when what happens, and how it is judged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from optuna.pruners import HyperbandPruner
from optuna.samplers import RandomSampler

from benchmarks.search_cases.beginning import COUNTS, regrets
from benchmarks.search_cases.choices import KERNELS, judged, sample
from benchmarks.search_quality.__main__ import main
from benchmarks.search_quality.judge import Judged, judge, tables, write_picture
from benchmarks.search_quality.known_brackets import KnownBrackets
from benchmarks.search_quality.loop import Bettered, Next, Played, Verdict, play
from benchmarks.search_quality.spoilt.ways import WAYS
from benchmarks.search_quality.systems import (
    AUTO,
    OURS,
    SYSTEMS,
    OptunaSearch,
    right_prior,
    right_transfer,
    seeded,
    wrong_prior,
    wrong_transfer,
)
from benchmarks.search_quality.tasks import Task
from tests.integration.benchmarks.recorded_task import NAMES, record_task

N_STEPS = 9
NOT_HERE = {"Ray Tune, random + ASHA", "Syne Tune, random + ASHA"}


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return record_task(tmp_path, N_STEPS)


class Scripted:
    """Trials of one configuration, each with its verdicts; what it was told, in order."""

    def __init__(self, verdicts: Mapping[int, Mapping[int, Verdict]]) -> None:
        self._verdicts = verdicts
        self.told: list[tuple[int, int]] = []
        self.completed: list[int] = []
        self.resumable: list[int] = []
        self._n = 0

    def next(self) -> Next:
        if self.resumable:
            return Next(trial=self.resumable.pop(), params={})
        params = dict(zip(NAMES, (64, 1e-2, 0.9, 1e-3, 3, 256, 0.5), strict=True))
        self._n += 1
        return Next(trial=self._n - 1, params=params)

    def report(self, trial: int, step: int, value: float, *, held_s: float) -> Verdict:
        self.told.append((trial, step))
        verdict = self._verdicts.get(trial, {}).get(step, Verdict.GO_ON)
        if verdict is Verdict.PAUSE:
            self.resumable.append(trial)
        return verdict

    def complete(self, trial: int, step: int, value: float) -> None:
        self.completed.append(trial)


def test_a_trial_that_is_stopped_makes_room_for_the_next(task: Task) -> None:
    search = Scripted({0: {2: Verdict.STOP}})
    played = play(search, task, n_workers=1, restart_s=1.0, n_medians=1.0)
    # Trial 0: a start and two steps until 3; the next: a start, and steps at 5 to 9.
    assert search.told == [(0, 1), (0, 2), *((1, step) for step in range(1, 6))]
    assert (played.end_s, played.n_trials) == (9.0, 2)
    assert [each.at_s for each in played.reported] == [2.0, 3.0, 7.0, 8.0, 9.0]


def test_a_trial_that_is_paused_goes_on_where_it_was_and_pays_its_start_again(task: Task) -> None:
    search = Scripted({0: {2: Verdict.PAUSE}})
    played = play(search, task, n_workers=1, restart_s=1.0, n_medians=12 / 9)
    assert search.told == [(0, step) for step in range(1, N_STEPS)]
    assert search.completed == [0]
    assert [each.at_s for each in played.completed] == [11.0]


def test_brackets_that_are_drawn_once_change_no_verdict(task: Task) -> None:
    plain, known = (
        play(
            OptunaSearch(
                task.space,
                RandomSampler(seed=0),
                pruner(min_resource=1, max_resource=N_STEPS, reduction_factor=3),
                name="seed 0",
            ),
            task,
            n_workers=4,
            restart_s=1.0,
            n_medians=20.0,
        )
        for pruner in (HyperbandPruner, KnownBrackets)
    )
    assert plain.n_trials > 100  # Some are stopped.
    assert (known.reported, known.completed) == (plain.reported, plain.completed)


def test_an_earlier_study_gives_its_best_or_its_worst(task: Task) -> None:
    best = [each["momentum"] for each in right_transfer(task, 0)]
    worst = [each["momentum"] for each in wrong_transfer(task, 0)]
    assert min(best) > max(worst)


def test_the_regret_is_judged_over_time(task: Task) -> None:
    half = task.best - (task.best - task.median) / 2
    steps = [Bettered(at_s=2.0, value=half), Bettered(at_s=6.0, value=task.best)]
    played = Played(reported=steps, completed=steps[1:], end_s=10.0, n_trials=3, search_ms=1.0)
    judged = judge(played, task, system="random", n_workers=4, seed=0)
    assert judged.area == pytest.approx(0.2 * 1.0 + 0.4 * 0.5)
    assert judged.area_completed == pytest.approx(0.6)
    assert judged.end == 0.0


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(SYSTEMS.keys() - NOT_HERE))
def test_every_system_plays(task: Task, name: str) -> None:
    search = seeded(name, task, seed=1)
    played = play(search, task, n_workers=2, restart_s=0.5, n_medians=8.0)
    assert played.n_trials > 2
    assert played.reported


#: By day: the default alone.
@pytest.mark.parametrize(
    "name",
    [AUTO, *(pytest.param(each, marks=pytest.mark.nightly) for each in sorted({*OURS} - {AUTO}))],
)
def test_the_seed_decides(task: Task, name: str) -> None:
    runs = [
        play(seeded(name, task, seed), task, n_workers=2, restart_s=0.5, n_medians=5.0)
        for seed in (1, 1, 2)
    ]
    assert runs[0].reported == runs[1].reported
    assert runs[0].reported != runs[2].reported


def a_search(task: str, system: str, seed: int, area: float) -> Judged:
    return Judged(
        task=task,
        system=system,
        n_workers=4,
        seed=seed,
        area=area,
        area_completed=area,
        end=0.1,
        n_trials=10,
        search_ms=1.0,
        steps=[(0.0, 1.0), (area, 0.1)],
    )


def test_of_many_tasks_a_table_has_means() -> None:
    # Better by 0.1 on nine tasks, worse by 0.2 on the last.
    text = tables(
        [
            a_search(f"task{k}", system, seed, area + seed / 100)
            for k in range(10)
            for system, area in (("random", 0.4), (AUTO, 0.6 if k == 9 else 0.3))
            for seed in range(2)
        ]
    )
    assert "| 4 workers, 10 tasks | mean area | mean end |" in text
    assert "| tuner, auto | 0.335 | 0.100 |" in text
    assert "tuner, auto / random: 0.83 (mean area)" in text
    assert "tuner, auto less random: -0.070 ± 0.030, smaller on 9 of 10 tasks;" in text
    assert "the worst is task9: +0.200" in text


def test_tables_and_picture(tmp_path: Path) -> None:
    all_of_them = [
        a_search("1", system, seed, area + seed / 100)
        for system, area in (("random", 0.4), ("Optuna, TPE", 0.5), (AUTO, 0.3))
        for seed in range(2)
    ]
    text = tables(all_of_them)
    assert "| tuner, auto | 0.305 ± 0.005 / 0.100 | 0.305 | 0.100 | 0.305 | 0.30 |" in text
    assert "tuner, auto / random: 0.75 (mean area)" in text
    write_picture(all_of_them, tmp_path / "picture.html")
    assert "tuner, auto" in (tmp_path / "picture.html").read_text()


def test_the_command_writes_figures_down(tmp_path: Path, task: Task) -> None:
    output = tmp_path / "figures.json"
    words = ["--systems", "random", "--workers", "2", "--seeds", "1", "--jobs", "1"]
    main([str(tmp_path / "lcbench_1.npz"), *words, "--output", str(output)])
    written = json.loads(output.read_text())
    assert [each["system"] for each in written["results"]] == ["random"]
    assert "optuna" in written["packages"]


def test_what_was_played_is_not_played_again(
    tmp_path: Path, task: Task, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.jsonl"
    words = [str(tmp_path / "lcbench_1.npz"), "--systems", "random", "--workers", "2"]
    words += ["--jobs", "1", "--kept", str(kept)]
    main([*words, "--seeds", "1"])
    main([*words, "--seeds", "2", "--output", str(tmp_path / "figures.json")])
    assert capsys.readouterr().err.count("seed 0") == 1
    assert len(kept.read_text().splitlines()) == 2
    results = json.loads((tmp_path / "figures.json").read_text())["results"]
    assert [each["seed"] for each in results] == [0, 1]
    main([*words, "--seeds", "1", "--restart", "7"])
    assert len(kept.read_text().splitlines()) == 3


@pytest.mark.parametrize("name", ["random, right prior", "tpe, wrong prior"])
def test_guess_is_played_first(task: Task, name: str) -> None:
    search = seeded(name, task, 3)
    guess = right_prior(task) if "right" in name else wrong_prior(task)
    assert search.next().params == guess
    ends = [task.table.curve(each(task)).values[-1] for each in (wrong_prior, right_prior)]
    assert ends[0] < ends[1]


def test_the_best_of_the_first_ones_is_better_where_they_cover_the_space(task: Task) -> None:
    ours, drawn = (
        np.mean([regrets(task, seed, covers=covers) for seed in range(40)], axis=0)
        for covers in (True, False)
    )
    assert len(ours) == len(COUNTS)
    # The largest momentum of four is in the highest quarter, and the value grows with it.
    assert ours[0] < drawn[0]
    assert list(ours) == sorted(ours, reverse=True)


def test_a_model_of_choices_is_compared_with_the_truth(task: Task) -> None:
    drawn = sample(WAYS["categories"](task), 340, seed=0)
    assert len(drawn.encoding.choices) == 5
    before, now = (
        judged(next(k for name, k in KERNELS.items() if word in name), drawn, 40)
        for word in ("before", "now")
    )
    # The value is the momentum, which is no choice: whatever the choices, it says it all.
    assert now[0] > 0.8
    assert now[0] > before[0]
    assert now[1] > before[1]
