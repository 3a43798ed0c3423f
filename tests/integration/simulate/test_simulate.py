"""Studies on the virtual clock, with the real dispatcher, sampler and pruners."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import optuna
import pytest

from tests.contract.launch.conftest import children_of, is_process_alive, until
from tests.integration.stored_studies import seeded
from tuner.config import PrunerConfig, StudyConfig, load_study_file
from tuner.domain.budget import Budget
from tuner.errors import ConfigError
from tuner.simulate import processes
from tuner.simulate.command import simulate_study
from tuner.simulate.curves import CurveTable, read_table
from tuner.simulate.run import Simulated, simulate

N_STEPS, STEP_S = 9, 10.0
STUDY = """
study: played
storage: sqlite:///played.db
objectives: {accuracy: maximize}
trial: {function: "m:f"}
search_space:
  lr: {type: float, low: 0.0, high: 1.0}
sampler: {name: random}
pruner: {name: asha, min_resource: 1, reduction_factor: 3}
budget: {trials: 27}
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study file, and beside it curves whose order never changes."""
    x = np.linspace(0.0, 1.0, 101)
    steps = np.arange(1, N_STEPS + 1)
    np.savez(
        tmp_path / "curves.npz",
        names=np.array(["lr"]),
        x=x[:, None],
        value=x[:, None] * (1 - 0.5**steps),
        seconds=np.ones((101, 1)) * STEP_S * steps,
    )
    file = tmp_path / "study.yaml"
    file.write_text(STUDY)
    return file


def play(study: Path, name: str, **options: object) -> Simulated:
    config: StudyConfig = load_study_file(study, environ={})
    table: CurveTable = read_table(study.parent / "curves.npz", config.search_space)  # type: ignore[arg-type]
    chosen = {"seed": 0, "n_devices": 2, "restart_s": 5.0, "budget": Budget(trials=27), **options}
    pruner = PrunerConfig.model_validate({"name": name})
    return simulate(config, table, pruner=pruner, **chosen)  # type: ignore[arg-type]


def test_without_a_pruner_time_is_what_the_curves_say(study: Path) -> None:
    run = play(study, "none", n_devices=3)
    whole_s = 5.0 + N_STEPS * STEP_S
    assert run.n_trials == run.n_completed == run.n_attempts == 27
    assert run.n_reports == 27 * N_STEPS
    assert run.device_s == pytest.approx(27 * whole_s)
    assert run.makespan_s == pytest.approx(9 * whole_s, abs=2.0)
    assert run.idle_share == pytest.approx(0.0, abs=0.01)


def test_promotion_finds_the_best_and_spends_less(study: Path) -> None:
    whole, promoted = play(study, "none"), play(study, "asha")
    assert promoted.n_trials == 27
    assert promoted.best[-1].value == pytest.approx(whole.best[-1].value)
    assert promoted.device_s < 0.6 * whole.device_s
    assert promoted.n_attempts > 27, "somebody was resumed"
    # No step is played twice, but for the report of one that had only its end left.
    assert promoted.n_reports <= whole.n_reports


def test_slices_find_the_best_and_spend_less(study: Path) -> None:
    whole, sliced = play(study, "none"), play(study, "freeze_thaw")
    assert sliced.n_trials == 27
    assert sliced.best[-1].value == pytest.approx(whole.best[-1].value)
    assert sliced.device_s < 0.6 * whole.device_s
    assert sliced.n_completed >= 1
    assert sliced.n_reports <= whole.n_reports


def test_the_same_seed_plays_the_same(study: Path) -> None:
    first, again = play(study, "asha", seed=3), play(study, "asha", seed=3)
    assert first.best == again.best
    assert first.makespan_s == again.makespan_s
    assert play(study, "asha", seed=4).best != first.best


def test_a_budget_of_time_ends_it_on_the_virtual_clock(study: Path) -> None:
    run = play(study, "none", budget=Budget(time_s=300.0))
    whole_s = 5.0 + N_STEPS * STEP_S
    # Three rounds; a fourth would end long after it.
    assert run.makespan_s == pytest.approx(3 * whole_s, abs=2.0)
    assert run.n_completed == 6


def test_the_verb_shows_each_pruner_and_draws_a_picture(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = study.parent / "picture.html"
    simulate_study(
        study,
        str(study.parent / "curves.npz"),
        n_devices=2,
        n_seeds=2,
        pruners=None,
        restart_s=5.0,
        picture=picture,
        environ={},
    )
    out = capsys.readouterr().out
    assert all(name in out for name in ("asha", "median", "none", "device-hours", "a second"))
    text = picture.read_text()
    assert "device-hours" in text
    assert "https://cdn" not in text.partition("<script")[0]


def test_processes_side_by_side_play_what_one_does(
    study: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def runs(n_processes: int) -> list[Simulated]:
        return simulate_study(
            study,
            str(study.parent / "curves.npz"),
            n_devices=2,
            n_seeds=2,
            pruners=["asha", "none"],
            restart_s=5.0,
            picture=None,
            environ={},
            n_processes=n_processes,
        )

    alone = runs(1)
    capfd.readouterr()
    together = runs(3)
    told = capfd.readouterr()
    assert "by 3 processes" in told.out
    assert "A new study" not in told.err
    assert [(run.pruner, run.seed) for run in together] == [
        (pruner, seed) for pruner in ("asha", "none") for seed in (0, 1)
    ]
    assert [run.best for run in together] == [run.best for run in alone]
    assert [run.makespan_s for run in together] == [run.makespan_s for run in alone]


def transferring(study: Path, curves: str = "curves.npz") -> list[Simulated]:
    """Two seeds of a study that begins near the best of another one."""
    text = STUDY.replace("sqlite:///played.db", f"sqlite:///{study.parent / 'played.db'}")
    study.write_text(f"{text.replace('name: random', 'name: tpe')}transfer: earlier\n")
    found = str(study.parent / curves) if curves.endswith(".npz") else curves
    return simulate_study(
        study,
        found,
        n_devices=2,
        n_seeds=2,
        pruners=["none"],
        restart_s=5.0,
        picture=None,
        environ={},
    )


def add_earlier(study: Path) -> None:
    url = f"sqlite:///{study.parent / 'played.db'}"
    trials = [
        optuna.trial.create_trial(
            value=lr,
            params={"lr": lr},
            distributions={"lr": optuna.distributions.FloatDistribution(0.0, 1.0)},
            intermediate_values={step: lr for step in range(1, N_STEPS + 1)},
        )
        for lr in (0.2, 0.97, 0.4)
    ]
    for trial in trials:
        trial.datetime_start = datetime(2026, 1, 1)
        trial.datetime_complete = trial.datetime_start + timedelta(seconds=90)
    seeded.add_study(url, "earlier", trials)


def test_it_begins_near_the_best_of_an_earlier_study(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_earlier(study)
    for run in transferring(study):
        # The first two trials that come to their end, of the two best.
        first = max(each.value for each in run.best if each.at_s <= 5.0 + N_STEPS * STEP_S)
        assert first == pytest.approx(0.97 * (1 - 0.5**N_STEPS), rel=0.02)
    assert "transfer: begins near 3 of the best configurations of earlier" in (
        capsys.readouterr().out
    )


def test_an_earlier_study_that_is_not_there_is_left_out(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(transferring(study)) == 2
    assert "transfer: is left out: " in capsys.readouterr().out


def test_what_is_played_is_no_earlier_study(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add_earlier(study)
    assert len(transferring(study, "earlier")) == 2
    assert "transfer: is left out, because earlier is what is played" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill-9"])
def test_no_process_is_left(study: Path, number: signal.Signals) -> None:
    words = ["study.yaml", "--curves", "curves.npz", "--jobs", "2", "--seeds", "500"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from tuner.cli.main import main; main()", "simulate", *words],
        cwd=study.parent,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        # A fork server, what looks after its resources, and two that play.
        until(lambda: len(children_of(process.pid)) >= 4, "two processes play")
        family = children_of(process.pid)
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    finally:
        # Two processes that play for an hour would slow all other tests down.
        process.kill()
    assert "Traceback" not in told
    assert process.returncode == (130 if number is signal.SIGINT else -signal.SIGKILL)
    until(lambda: not any(map(is_process_alive, family)), "nothing of it is left")


def test_ctrl_c_waits_until_the_processes_have_started() -> None:
    """Also where SIGINT is unblocked meanwhile, as multiprocessing's resource tracker does."""
    done = []

    def start() -> None:
        with processes._undisturbed():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            signal.raise_signal(signal.SIGINT)
            done.append("the rest of a start")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert done == ["the rest of a start"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_population_cannot_be_played(study: Path) -> None:
    """A recorded curve is of one configuration."""

    def refused(pruners: list[str] | None) -> str:
        with pytest.raises(ConfigError) as caught:
            simulate_study(
                study,
                str(study.parent / "curves.npz"),
                n_devices=2,
                n_seeds=1,
                pruners=pruners,
                restart_s=0.0,
                picture=None,
                environ={},
            )
        return str(caught.value)

    problem = (
        "is 'pbt', which cannot be simulated: a recorded curve is of one configuration, and pbt "
        "changes parameters on the way. Name others with --pruner."
    )
    assert refused(["asha", "pbt"]) == f"--pruner {problem}"
    study.write_text(
        STUDY.replace("pruner: {name: asha, min_resource: 1, reduction_factor: 3}", "pruner: pbt")
    )
    assert refused(None) == f"{study}: pruner.name {problem}"
