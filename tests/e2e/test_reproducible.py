"""The same seed and one device give the same study; what is needed to repeat it is stored."""

from __future__ import annotations

import json
import subprocess

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BUDGET_REACHED

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
N_TRIALS = 12
TRIALS = """
    select t.number, t.state, v.value, p.param_name, p.param_value
    from trials t
    join studies s on s.study_id = t.study_id
    left join trial_values v on v.trial_id = t.trial_id
    left join trial_params p on p.trial_id = t.trial_id
    where s.study_name = ?
    order by t.number, p.param_name
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
