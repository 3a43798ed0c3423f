"""Suggestions of a Gaussian process, made in another process, beside those made in this one."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest
import torch
from optuna.samplers import BaseSampler
from optuna.trial import TrialState, create_trial

from tests.databases import new_database
from tests.integration.search.gaussian import DISTRIBUTIONS, gaussian
from tests.rung_notes import trust_note
from tuner.config import Direction
from tuner.search.rungs.order.stored_trust import TRUST_KEY, last_open_step
from tuner.search.samplers.out_of_process.sampler import (
    OutOfProcessSampler,
    bare,
    out_of_process,
)
from tuner.search.study import StudySearch
from tuner.search.trial_attributes.vector_curve import CURVE_KEY, has_diverged
from tuner.store.connection.database import open_database

N_STARTUP = 3
N_RUNNING = 2

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


@pytest.fixture(autouse=True)
def _alike() -> Iterator[None]:
    # The other process computes with one thread, and sums depend on how many there are.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def aside() -> Iterator[OutOfProcessSampler]:
    sampler = out_of_process(gaussian(n_startup_trials=N_STARTUP))
    assert sampler is not None
    yield sampler
    sampler.close()
    assert not psutil.pid_exists(sampler.pid)


def a_study(sampler: BaseSampler, n_trials: int, **changes: dict[str, float]) -> optuna.Study:
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for number in range(n_trials):
        params = {"x": number / n_trials, "y": (7 * number % n_trials) / n_trials}
        trial = create_trial(
            params=params,
            distributions=DISTRIBUTIONS,
            value=params["x"] - params["y"],
            intermediate_values={0: 0.5},
            **changes,
        )
        study.add_trial(trial)
    return study


def suggestions(study: optuna.Study, n: int) -> list[dict[str, float]]:
    """Several trials that run at once, then two that follow one another."""
    trials = [study.ask(DISTRIBUTIONS) for _ in range(N_RUNNING)]
    for _ in range(n - N_RUNNING):
        trials.append(study.ask(DISTRIBUTIONS))
        study.tell(trials[-1], trials[-1].params["x"] / 2)
    return [trial.params for trial in trials]


def wait_for(sampler: OutOfProcessSampler) -> None:
    assert select.select([sampler], [], [], 60.0)[0], "the other process says nothing"


def test_they_are_the_ones_of_optuna(aside: OutOfProcessSampler) -> None:
    ours = suggestions(a_study(aside, 8), 4)
    theirs = suggestions(a_study(gaussian(n_startup_trials=N_STARTUP), 8), 4)
    assert [pytest.approx(params, rel=1e-6) for params in theirs] == ours


def test_curves_are_learned_from_there_as_they_would_be_here() -> None:
    def unfinished(sampler: BaseSampler) -> optuna.Study:
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for number in range(8):
            x, y = number / 8, (7 * number % 8) / 8
            curve = {step: (x - y) * step + 0.1 * y for step in range(1, 2 + number)}
            pruned = create_trial(
                state=TrialState.PRUNED,
                params={"x": x, "y": y},
                distributions=DISTRIBUTIONS,
                intermediate_values=curve,
            )
            study.add_trial(pruned)
        return study

    sampler = out_of_process(gaussian(N_STARTUP, "curve_gp"))
    assert sampler is not None
    ours = suggestions(unfinished(sampler), 5)
    sampler.close()
    theirs = suggestions(unfinished(gaussian(N_STARTUP, "curve_gp")), 5)
    assert [pytest.approx(params, rel=1e-6) for params in theirs] == ours


def test_fronts_and_failures_are_learned_from_there_as_they_would_be_here() -> None:
    def unfinished(sampler: BaseSampler) -> optuna.Study:
        study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
        for number in range(8):
            x, y = number / 8, (7 * number % 8) / 8
            curve: list[Any] = [[step, [(x - y) * step, x]] for step in range(1, 2 + number)]
            if number == 7:
                curve.append([9, [float("nan"), x]])
            pruned = create_trial(
                state=TrialState.PRUNED if number else TrialState.COMPLETE,
                values=None if number else curve[-1][1],
                params={"x": x, "y": y},
                distributions=DISTRIBUTIONS,
                system_attrs={CURVE_KEY: curve},
                constraints={"tuner:out_of_memory": 1.0} if number == 6 else {},
            )
            study.add_trial(pruned)
        return study

    def asked(sampler: BaseSampler) -> list[dict[str, float]]:
        study = unfinished(sampler)
        return [study.ask(DISTRIBUTIONS).params for _ in range(4)]

    sampler = out_of_process(gaussian(N_STARTUP, "curve_gp"))
    assert sampler is not None
    ours = asked(sampler)
    sampler.close()
    theirs = asked(gaussian(N_STARTUP, "curve_gp"))
    assert [pytest.approx(params, rel=1e-6) for params in theirs] == ours


@pytest.mark.slow
def test_the_other_process_does_without_sqlalchemy() -> None:
    """It would take memory and a part of a second, and talks to no database."""
    asked = "import sys, tuner.search.samplers.out_of_process.worker as _; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True
    )
    assert "tuner.search.samplers.curve_gp.sampler" in loaded.stdout.split()
    assert "sqlalchemy" not in loaded.stdout.split()


def test_a_single_objective_that_diverged_is_known_there() -> None:
    trial = create_trial(
        state=TrialState.PRUNED, intermediate_values={1: 0.5, 2: 0.6, 3: float("nan")}
    )
    assert has_diverged(bare(trial, with_curve=True))
    assert not bare(trial, with_curve=False).intermediate_values


def test_open_rungs_are_known_there() -> None:
    trial = create_trial(state=TrialState.PRUNED, intermediate_values={1: 0.5})
    trial.system_attrs[TRUST_KEY] = trust_note((2, 6))
    assert last_open_step([bare(trial, with_curve=True)]) == 6


def test_first_trials_wait_for_nothing(aside: OutOfProcessSampler) -> None:
    os.kill(aside.pid, signal.SIGSTOP)
    study = a_study(aside, N_STARTUP - 1)
    assert aside.is_ready(study)
    assert study.ask(DISTRIBUTIONS).params.keys() == {"x", "y"}


def test_while_it_imports_and_others_run_chance_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    wait = f"import os, time\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.01)\n"
    (tmp_path / "sitecustomize.py").write_text(wait)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    sampler = out_of_process(gaussian(N_STARTUP))
    assert sampler is not None
    study = a_study(sampler, 8)
    assert not sampler.is_ready(study), "nobody works meanwhile, so that it is waited for"
    study.add_trial(create_trial(state=TrialState.RUNNING))
    for _ in range(N_STARTUP):
        assert sampler.is_ready(study)
        trial = study.ask(DISTRIBUTIONS)
        # Else Optuna would take it for a space that changes, and warn.
        assert trial.relative_params.keys() == {"x", "y"}
        stored = study._storage.get_trial(trial._trial_id)
        assert not stored.system_attrs
    assert not sampler.is_ready(study), "as many again as at the start, and no more"
    go.touch()
    while not sampler.is_ready(study):
        wait_for(sampler)
    assert study.ask(DISTRIBUTIONS).relative_params.keys() == {"x", "y"}
    sampler.close()


def test_who_asks_whether_it_is_ready_is_not_held_up(aside: OutOfProcessSampler) -> None:
    study = a_study(aside, 8)
    os.kill(aside.pid, signal.SIGSTOP)
    assert not aside.is_ready(study)
    assert not aside.is_ready(study)
    os.kill(aside.pid, signal.SIGCONT)
    while not aside.is_ready(study):
        wait_for(aside)
    # What is ready needs nobody any more.
    os.kill(aside.pid, signal.SIGSTOP)
    trial = study.ask(DISTRIBUTIONS)
    assert trial.params.keys() == {"x", "y"}
    stored = study._storage.get_trial(trial._trial_id)
    assert "gp:relative_params:0" in stored.system_attrs, "others shall know of it"
    assert aside.took_s > 0
    assert not aside.is_ready(study), "it is used once"


def test_suggestion_for_another_space_is_not_used(aside: OutOfProcessSampler) -> None:
    study = a_study(aside, 8)
    assert not aside.is_ready(study)
    # From now on all trials have `x` alone in common.
    study.add_trial(
        create_trial(params={"x": 0.5}, distributions={"x": DISTRIBUTIONS["x"]}, value=2.0)
    )
    trial = study.ask()
    assert trial.relative_params.keys() == {"x"}


def test_error_of_the_sampler_comes_out_where_it_is_asked(aside: OutOfProcessSampler) -> None:
    study = a_study(aside, 8)
    odd = create_trial(
        params={"x": 0.1, "y": 0.1},
        distributions=DISTRIBUTIONS,
        value=1.0,
        constraints={"memory": 1.0},
    )
    study.add_trial(odd)
    trial = study.ask()
    with pytest.raises(ValueError, match="number of constraints must be the same") as raised:
        trial.suggest_float("x", 0.0, 1.0)
    assert "_get_constraint_vals" in "".join(raised.value.__notes__)


def test_without_its_process_suggestions_go_on(aside: OutOfProcessSampler) -> None:
    study = a_study(aside, 8)
    assert not aside.is_ready(study)
    os.kill(aside.pid, signal.SIGKILL)
    while not aside.is_ready(study):
        wait_for(aside)
    assert aside.is_lost
    assert [params.keys() for params in suggestions(study, 3)] == [{"x", "y"}] * 3


def test_trial_that_waits_needs_no_suggestion(tmp_path, aside: OutOfProcessSampler) -> None:
    os.kill(aside.pid, signal.SIGSTOP)
    database = open_database(new_database(tmp_path))
    search = StudySearch(
        database.storage,
        "study",
        objectives={"loss": Direction.MINIMIZE},
        space=None,
        sampler=aside,
        pruner=optuna.pruners.NopPruner(),
    )
    for trial in a_study(aside, 8).trials:
        search.study.add_trial(trial)
    assert not search.is_ready
    search.study.enqueue_trial({"x": 0.25, "y": 0.75})
    assert search.is_ready
    asked = search.ask()
    assert asked is not None
    for name in ("x", "y"):
        distribution = optuna.distributions.distribution_to_json(DISTRIBUTIONS[name])
        search.suggest(asked.trial_id, name, distribution)
    assert search.params_of(asked.trial_id) == {"x": 0.25, "y": 0.75}
    assert search.counts.by_state()[TrialState.RUNNING] == 1
    database.close()


#: Its dispatcher is dead, and the signal comes while it ends.
ALONE = """
import atexit, os, signal, sys, time
from tuner.search.samplers.out_of_process import worker

ready, end = os.pipe()
if os.fork():
    os.read(ready, 1)
    os._exit(0)
worker._outlive_sigterm()
dispatcher = os.getppid()
os.write(end, b".")
while os.getppid() == dispatcher:
    time.sleep(0.01)
atexit.register(os.kill, os.getpid(), signal.SIGTERM)
"""


def test_a_worker_whose_dispatcher_was_killed_ends_without_a_word() -> None:
    # The end of its output is the end of the worker.
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("", "")
