"""Trials on several devices and on shares of one, with real processes and real collectives."""

from __future__ import annotations

import json
import signal

import psutil
import pytest

from tests.e2e.study_folder import AttemptRecord, StudyFolder, wait_until
from tuner.errors import EXIT_BUDGET_REACHED, EXIT_INTERRUPTED

pytestmark = pytest.mark.programs

STUBBORN_SCRIPT = """
import os, pathlib, signal, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(f"rank-{os.environ['RANK']}").touch()
time.sleep(600)
"""

# Each trial does what its parameter says, most of it at step 2 and on rank 1.
RANKS = """
import os, signal, socket, time
from pathlib import Path

import optuna
import torch
import torch.distributed as dist

def train(trial):
    how = trial.params["how"]
    if how == "port" and trial.attempt_number == 1 and trial.is_main:
        other = socket.create_server(("", int(os.environ["MASTER_PORT"])))
    dist.init_process_group("gloo")
    for step in range(5):
        value = torch.ones(1)
        dist.all_reduce(value)
        if step == 2:
            misbehave(trial, how)
        shown = step + (how == "disagrees" and trial.rank == 1)
        trial.report(float(value) - (how == "pruned"), shown, place=trial.rank)
        if trial.should_prune():
            Path(f"pruned-{trial.number}-rank-{trial.rank}-{step}").touch()
            raise optuna.TrialPruned
    if how == "lingers" and trial.rank == 1:
        time.sleep(600)
    dist.destroy_process_group()
    return float(value)

def misbehave(trial, how):
    Path(f"at-{trial.number}-{trial.rank}").touch()
    if how == "waits":
        time.sleep(600)
    if trial.rank == 1:
        if how == "raises":
            raise ValueError("rank 1 knows why")
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "leaves":
            os._exit(0)
        if how == "hangs":
            time.sleep(600)
"""
# A script for torchrun that imports nothing of ours.
SCRIPT = """
import json, os, sys, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
for step in range(3):
    value = total.clone()
    dist.all_reduce(value)
    if dist.get_rank() == 0:
        print(json.dumps({"step": step, "value": float(value) * float(sys.argv[1])}), flush=True)
    dist.barrier()
dist.destroy_process_group()
"""


def a_study_of(folder: StudyFolder, *hows: str, **keys: object) -> None:
    """One trial of two ranks for each way to go."""
    folder.write("forecast.py", RANKS)
    defaults: dict[str, object] = {
        "trial": {"function": "forecast:train", "resources": {"cpus": 2}, "stop_grace": "2s"},
        "objectives": {"value": "maximize"},
        "search_space": {"how": {"type": "categorical", "choices": list(hows)}},
        "sampler": "grid",
        "pruner": {"name": "threshold", "lower": 1.5},
        "devices": "cpu:2",
        "budget": {"trials": len(hows)},
    }
    folder.study(**defaults | keys)


def by_way(folder: StudyFolder) -> dict[str, AttemptRecord]:
    """The last attempt of each way to go."""
    return {json.loads(each.params)["how"]: each for each in folder.attempts()}


def test_every_end_of_a_group_has_its_cause_and_the_next_trial_starts_cleanly(
    study_folder: StudyFolder,
) -> None:
    ways = ("fine", "raises", "killed", "leaves", "lingers", "disagrees", "pruned", "port", "still")
    a_study_of(study_folder, *ways)
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    found = by_way(study_folder)
    outcomes = {way: (each.outcome, each.cause) for way, each in found.items()}
    assert outcomes == {
        "fine": ("completed", None),
        "still": ("completed", None),
        "port": ("completed", None),
        "pruned": ("pruned", "pruner"),
        "raises": ("failed", "exception"),
        "killed": ("failed", "signal"),
        "leaves": ("failed", outcomes["leaves"][1]),
        "lingers": ("completed", None),
        "disagrees": ("failed", "exception"),
    }
    assert "rank 1 knows why" in found["raises"].detail
    assert found["raises"].detail.startswith("Rank 1: ")
    assert "SIGKILL" in found["killed"].detail
    assert "step" in found["disagrees"].detail
    assert "rank 1 had not ended" in found["lingers"].detail
    log = study_folder.tuner("logs", str(found["raises"].trial), "--rank", "1").out
    assert "ValueError: rank 1 knows why" in log
    assert found["port"].number == 2
    check_ranks_are_pruned_at_the_same_step(study_folder)
    # Rank 0 alone reports.
    assert study_folder.rows("select distinct value from tuner_metrics") == [(0.0,)]


def check_ranks_are_pruned_at_the_same_step(folder: StudyFolder) -> None:
    marks = sorted(name for name in folder.files() if name.startswith("pruned-"))
    (zero, one) = marks
    assert zero.rpartition("-")[2] == one.rpartition("-")[2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_rank_is_left_when_the_tuner_is_ended(
    study_folder: StudyFolder, number: signal.Signals
) -> None:
    a_study_of(study_folder, "waits")
    running = study_folder.start()
    wait_until(lambda: {"at-0-0", "at-0-1"} <= study_folder.files(), "both ranks are at work")
    family = psutil.Process(running.process.pid).children(recursive=True)
    running.signal(number)
    ended = running.wait()
    if number is signal.SIGINT:
        assert ended.code == EXIT_INTERRUPTED, ended.text
        assert study_folder.attempts()[0].outcome == "cancelled"
    gone = {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    wait_until(
        lambda: all(not p.is_running() or p.status() in gone for p in family), "all have ended"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_stubborn_ranks_of_torchrun_end_with_the_tuner(
    study_folder: StudyFolder, number: signal.Signals
) -> None:
    """It gives each a session of its own, and waits half a minute for one that ignores SIGTERM."""
    study_folder.write("script.py", STUBBORN_SCRIPT)
    command = ["python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node={gpus}"]
    trial = {"command": [*command, "script.py"], "resources": {"cpus": 2}, "stop_grace": "10m"}
    study_folder.study(trial=trial, budget={"trials": 1})
    running = study_folder.start()
    wait_until(lambda: {"rank-0", "rank-1"} <= study_folder.files(), "both ranks are at work")
    family = psutil.Process(running.process.pid).children(recursive=True)
    running.signal(number)
    if number is signal.SIGTERM:
        wait_until(lambda: "Ctrl-C again kills them" in running.out, "the first one is heard")
        running.signal(number)
    running.wait()
    gone = {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    wait_until(
        lambda: all(not p.is_running() or p.status() in gone for p in family), "all have ended"
    )


def test_timeout_ends_every_rank(study_folder: StudyFolder) -> None:
    trial = {"function": "forecast:train", "resources": {"cpus": 2}, "timeout": "3s"}
    a_study_of(study_folder, "hangs", "fine", trial={**trial, "stop_grace": "1s"})
    study_folder.tune()
    found = by_way(study_folder)
    assert found["hangs"].outcome == "timed_out"
    assert found["fine"].outcome == "completed"


def test_widths_1_and_2_in_one_study(study_folder: StudyFolder) -> None:
    space = {
        "how": {"type": "categorical", "choices": ["fine"]},
        "world_size": {"type": "categorical", "choices": [1, 2]},
    }
    trial = {"function": "forecast:train", "resources": {"cpus": "{world_size}"}}
    a_study_of(
        study_folder,
        trial=trial,
        search_space=space,
        sampler={"name": "random", "seed": 1},
        pruner="none",
        devices="cpu:3",
        budget={"trials": 10},
    )
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    values = study_folder.rows("select value from trial_values")
    assert {value for (value,) in values} == {1.0, 2.0}
    n_leases = study_folder.rows(
        "select json_extract(a.params, '$.world_size'), count(*) from tuner_leases l "
        "join tuner_attempts a on a.id = l.attempt_id group by a.id"
    )
    assert len(n_leases) == 10
    assert all(wanted == given for wanted, given in n_leases)


@pytest.mark.parametrize(
    "trial",
    [
        pytest.param(
            {"command": ["python", "script.py", "{x}"], "parallel": "ddp"}, id="once-per-rank"
        ),
        pytest.param(
            {
                "command": [
                    *("python", "-m", "torch.distributed.run", "--standalone"),
                    *("--nproc-per-node={gpus}", "script.py", "{x}"),
                ]
            },
            id="torchrun",
        ),
    ],
)
def test_script_for_torchrun_runs_unmodified(
    study_folder: StudyFolder, trial: dict[str, object]
) -> None:
    study_folder.write("script.py", SCRIPT)
    study_folder.study(trial={**trial, "resources": {"cpus": 2}}, budget={"trials": 2})
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    rows = study_folder.rows(
        "select p.param_value, v.value from trial_params p join trial_values v using (trial_id)"
    )
    assert [value for _, value in rows] == [pytest.approx(3 * x) for x, _ in rows]


def test_two_trials_share_a_slot(study_folder: StudyFolder) -> None:
    trial = {"function": "forecast:train", "resources": {"cpus": 0.5}}
    study_folder.study(trial=trial, devices="cpu:1", budget={"trials": 6})
    ended = study_folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert study_folder.rows("select distinct share from tuner_leases") == [(0.5,)]
    assert "trial 1: started on cpu:0" in ended.out.partition("completed")[0]


# By day, test_every_end_of_a_group... starts nine in a row.
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_hundred_groups_in_a_row_start_cleanly_whatever_became_of_the_last(
    study_folder: StudyFolder,
) -> None:
    ways = ("fine", "raises", "killed", "pruned", "disagrees", "leaves")
    a_study_of(study_folder, *ways, sampler={"name": "random", "seed": 3}, budget={"trials": 100})
    ended = study_folder.start().wait(timeout_s=240.0)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    expected = {"fine": "completed", "pruned": "pruned"}
    found = [(json.loads(each.params)["how"], each.outcome) for each in study_folder.attempts()]
    assert len(found) == 100
    assert all(outcome == expected.get(how, "failed") for how, outcome in found)
