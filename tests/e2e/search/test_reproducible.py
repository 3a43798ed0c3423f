"""The same seed and one device give the same study; what is needed to repeat it is stored."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BUDGET_REACHED
from tuner.search.samplers.registry import SAMPLERS

# numpy and torch were imported by the process that this one is forked from.
DRAWS = """
import random, sys

def train(trial):
    draws = {
        "random": random.random(),
        "numpy": sys.modules["numpy"].random.random(),
        "torch": sys.modules["torch"].rand(1).item(),
        "seed": trial.seed,
    }
    for name, value in draws.items():
        trial.set_user_attr(name, value)
    value = trial.params["x"] + 0.1 * sum(draws[name] for name in ("random", "numpy", "torch"))
    for step in range(3):
        trial.report(value / (step + 1), step)
    return value
"""
# Its delays are drawn from the system's own source, which no seed changes.
DELAYED = """
import os
import random

import optuna
import time

def train(trial):
    longest_s = float(os.environ.get("LONGEST_S", "0"))
    value = (trial.params["x"] - 0.3) ** 2 + trial.params["n"] / 64 + 0.1 * random.random()
    for step in range(1, 5):
        time.sleep(random.SystemRandom().uniform(0, longest_s))
        trial.report(value + 1 / step, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return value
"""
N_TRIALS = 12
N_DELAYED = 16
TRIALS = """
    select t.number, t.state, v.value, p.param_name, p.param_value
    from trials t
    join studies s on s.study_id = t.study_id
    left join trial_values v on v.trial_id = t.trial_id
    left join trial_params p on p.trial_id = t.trial_id
    where s.study_name = ?
    order by t.number, p.param_name
"""
CURVES = """
    select t.number, c.step, c.intermediate_value
    from trials t
    join studies s on s.study_id = t.study_id
    join trial_intermediate_values c on c.trial_id = t.trial_id
    where s.study_name = ?
    order by t.number, c.step
"""
ATTRIBUTES = "select value_json from trial_user_attributes where key = ?"


def git(folder: StudyFolder, *words: str) -> str:
    identity = ("-c", "user.name=A User", "-c", "user.email=user@example.org")
    command = ["git", "-C", str(folder.path), *identity, *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=folder.environment()
    )
    return done.stdout.strip()


def write_study(folder: StudyFolder) -> None:
    folder.write("forecast.py", DRAWS)
    folder.study(
        storage="sqlite:///small.db",
        search_space={
            "x": {"type": "float", "low": 0, "high": 1},
            "n": {"type": "int", "low": 1, "high": 64, "log": True},
            "kind": {"type": "categorical", "choices": ["a", "b"]},
            "extra": {"type": "float", "low": 0, "high": 1, "when": {"kind": "b"}},
        },
        sampler={"name": "tpe", "seed": 7, "n_startup_trials": 4},
        devices="cpu:1",
        budget={"trials": N_TRIALS},
    )


def test_same_seed_gives_the_same_study(study_folder: StudyFolder) -> None:
    write_study(study_folder)
    for study in ("one", "two"):
        ended = study_folder.tune("--study", study)
        assert (ended.code, ended.err) == (EXIT_BUDGET_REACHED, "")
    one, two = (study_folder.rows(TRIALS, study) for study in ("one", "two"))
    assert one == two
    assert len({row[0] for row in one}) == N_TRIALS

    ended = study_folder.tune("--study", "three", "--set", "sampler.seed=8", "--trials", "3")
    assert ended.code == EXIT_BUDGET_REACHED
    assert study_folder.rows(TRIALS, "three")[0] != one[0]

    # Each trial draws its own numbers, the same again in the other study, others with another seed.
    for name in ("random", "numpy", "torch", "seed"):
        draws = [json.loads(text) for (text,) in study_folder.rows(ATTRIBUTES, name)]
        assert len(draws) == 2 * N_TRIALS + 3
        assert len(set(draws)) == N_TRIALS + 3
    seeds = {attempt.seed for attempt in study_folder.attempts()}
    assert len(seeds) == N_TRIALS + 3


#: What a sampler needs beside its name.
ARGUMENTS: dict[str, dict[str, object]] = {
    "curve_gp": {"n_startup_trials": 4},
    "gp": {"n_startup_trials": 4},
    "tpe": {"n_startup_trials": 4},
    "cma_es": {"n_startup_trials": 2, "popsize": 4},
    "nsgaii": {"population_size": 4},
    "nsgaiii": {"population_size": 4},
    "qmc": {"scramble": True},
    "partial_fixed": {"fixed_params": {"n": 8}, "base_sampler": {"name": "tpe"}},
}
#: Those that list all values.
LISTS = {"grid", "brute_force"}
#: Gives way to tests that run beside this one, which keep the processors as busy.
BURNER = ["nice", "-n", "10", sys.executable, "-c", "while True: pass"]


@contextmanager
def busy_machine() -> Iterator[None]:
    """Others use every processor."""
    burners = [subprocess.Popen(BURNER) for _ in range(2 * len(os.sched_getaffinity(0)))]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def check_repeats(folder: StudyFolder, sampler: dict[str, object], **keys: object) -> None:
    """Two studies with one seed, the second on a busy machine and with trials that take longer."""
    folder.write("forecast.py", DELAYED)
    step = {"step": 0.25} if sampler["name"] in LISTS else {}
    folder.study(
        storage="sqlite:///small.db",
        search_space={
            "x": {"type": "float", "low": 0, "high": 1, **step},
            "n": {"type": "int", "low": 1, "high": 8},
        },
        sampler={"seed": 3, **sampler},
        devices="cpu:1",
        budget={"trials": N_DELAYED},
        **keys,
    )
    assert folder.tune("--study", "quiet").code == EXIT_BUDGET_REACHED
    folder.env["LONGEST_S"] = "0.2"
    with busy_machine():
        ended = folder.start("--study", "busy").wait(timeout_s=110.0)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    for query in (TRIALS, CURVES):
        quiet, busy = (folder.rows(query, study) for study in ("quiet", "busy"))
        assert quiet == busy
        assert len({row[0] for row in quiet}) == N_DELAYED


#: One of Optuna's; what is the default has a test below. The others draw from the same seed in the
#: same order of reports.
BY_DAY = ("tpe",)


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.nightly] * (name not in BY_DAY))
        for name in SAMPLERS.classes
    ],
)
def test_every_sampler_repeats_a_study_on_a_busy_machine(
    study_folder: StudyFolder, name: str
) -> None:
    check_repeats(study_folder, {"name": name, **ARGUMENTS.get(name, {})})


@pytest.mark.timeout(200)
def test_what_the_platform_picks_repeats_a_study_near_a_guess(study_folder: StudyFolder) -> None:
    """No sampler and no pruner named, and a prior, which is asked in turns with the sampler."""
    check_repeats(study_folder, {"name": "auto"}, prior={"x": 0.25, "n": 2})


def test_study_file_versions_and_commit_are_stored(study_folder: StudyFolder) -> None:
    study_folder.write(".gitignore", "small.db*\ntuner-files\n")
    study_folder.study()
    git(study_folder, "init", "--quiet")
    git(study_folder, "add", ".")
    git(study_folder, "commit", "--quiet", "--message", "A study")
    commit = git(study_folder, "rev-parse", "HEAD")
    assert study_folder.tune().code == EXIT_BUDGET_REACHED
    study_folder.write("forecast.py", "def train(trial):\n    return 1.0\n")
    assert study_folder.tune("--trials", "5").code == EXIT_BUDGET_REACHED

    query = "select study_file, versions, git_commit, git_is_dirty, folder, seed "
    starts = study_folder.rows(f"{query} from tuner_dispatchers order by id")
    text = (study_folder.path / "study.yaml").read_text()
    assert [(row[0], row[2], row[3]) for row in starts] == [(text, commit, 0), (text, commit, 1)]
    versions = json.loads(starts[0][1])
    assert {"python", "optuna", "torch", "numpy", "sqlalchemy"} <= set(versions)
    assert [row[4:] for row in starts] == [(str(study_folder.path), 1)] * 2

    best = json.loads(study_folder.best("study.yaml", "--format", "json").out)
    assert best[0]["git_commit"] == commit
