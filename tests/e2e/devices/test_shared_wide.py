"""Wide trials on a machine that is divided: one that was widened shrinks, others wait whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.e2e.devices.test_shares import (
    WAIT_S,
    a_study,
    check_no_device_had_two,
    share,
    steps_twice,
)
from tests.e2e.study_folder import StudyFolder, wait_until
from tuner.errors import EXIT_BUDGET_REACHED

pytestmark = pytest.mark.slow

# It goes on until it is told that it is enough, and says with how many ranks it made each step.
RANKS = """
import os, time
import optuna
from tuner import ddp

def train(trial):
    with ddp.group(trial):
        if trial.number:
            trial.report(0.0, step=10_000)
            return 0.0
        step = (trial.load_checkpoint() or {"step": 0})["step"]
        while not os.path.exists("enough"):
            step += 1
            time.sleep(0.4 / trial.world_size)
            trial.report(float(step), step=step)
            if trial.is_main:
                with open("steps.txt", "a") as file:
                    file.write(f"{step} {trial.world_size}\\n")
            trial.save_checkpoint({"step": step}, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return float(step)
"""


def steps(file: Path) -> list[tuple[int, int]]:
    """Step and ranks."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [(int(step), int(n_ranks)) for step, n_ranks in map(str.split, lines)]


@pytest.mark.programs
@pytest.mark.timeout(400)
def test_a_trial_that_was_widened_shrinks_for_a_study_that_has_a_right_and_grows_again(
    study_folder: StudyFolder,
) -> None:
    share(study_folder, cpu_slots=4, hold=0.5, grace="60s")
    study_folder.write("forecast.py", RANKS)
    study_folder.study(
        "wide.yaml",
        study="wide",
        objectives={"value": "maximize"},
        trial={
            "function": "forecast:train",
            "resources": {"cpus": 1},
            "parallel": "ddp",
            "stop_grace": "5m",
        },
        pruner="none",
        devices="cpu:4",
        priority=10,
        budget={"trials": 2},
        widen=True,
    )
    a_study(study_folder, "owner", n_steps=60, devices="cpu:2", priority=90, budget={"trials": 2})
    said = study_folder.path / "steps.txt"
    wide = study_folder.start(file="wide.yaml")
    wait_until(lambda: any(n == 4 for _, n in steps(said)), "it has four ranks", 240)
    owner = study_folder.start(file="owner.yaml")
    ended = owner.wait(WAIT_S)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    at_owners_end = steps(said)
    narrowed = [n_ranks for _, n_ranks in at_owners_end][-1]
    assert narrowed == 2, at_owners_end
    wait_until(lambda: steps(said)[-1][1] == 4, "it has four ranks again", 100)
    study_folder.write("enough", "")
    ended = wide.wait(WAIT_S)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    ranks = [n_ranks for _, n_ranks in steps(said)]
    # Beside the owner it had two, and it did not wait until all four were free again.
    first_four = ranks.index(4)
    assert 2 in ranks[first_four : len(at_owners_end)], ranks
    numbers = [step for step, _ in steps(said)]
    assert numbers == list(range(1, len(numbers) + 1))
    given_back = "select count(*) from tuner_events where name = 'given_back'"
    assert study_folder.rows(given_back, database="wide.db") != [(0,)]
    check_no_device_had_two(study_folder, "wide", "owner")


def test_a_wide_trial_waits_whole_and_goes_on_with_all_of_its_devices(
    study_folder: StudyFolder,
) -> None:
    share(study_folder, cpu_slots=4, hold=0.5, grace="20s")
    a_study(study_folder, "wide", n_steps=20, devices="cpu:4", priority=10, budget={"trials": 2})
    goes_on = study_folder.write("go-on-wide", "")
    file = study_folder.path / "wide.yaml"
    keys = yaml.safe_load(file.read_text())
    keys["trial"] |= {"resources": {"cpus": 2}, "parallel": "single_process"}
    file.write_text(yaml.safe_dump(keys))
    a_study(study_folder, "narrow", n_steps=20, devices="cpu:1", priority=90, budget={"trials": 1})
    wide = study_folder.start(file="wide.yaml")
    wait_until(lambda: wide.out.count("started on") == 2, "both trials run", WAIT_S)
    narrow = study_folder.start(file="narrow.yaml")
    assert narrow.wait(WAIT_S).code == EXIT_BUDGET_REACHED
    goes_on.unlink()
    ended = wide.wait(WAIT_S)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    # One of two trials made room for a single slot; the other was left alone.
    attempts = study_folder.attempts("wide.db")
    assert sorted(str(each.outcome) for each in attempts) == ["cancelled", "completed", "completed"]
    query = """
        select attempt_id, count(*) from tuner_leases group by attempt_id
    """
    assert {n for _, n in study_folder.rows(query, database="wide.db")} == {2}
    assert steps_twice(study_folder, "wide") == []
    check_no_device_had_two(study_folder, "wide", "narrow")
