"""The last trial of a study continues on more devices, with real ranks that meet over gloo."""

from __future__ import annotations

import signal
from itertools import pairwise

import optuna
import pytest

from tests.e2e.study_folder import AttemptRecord, StudyFolder, wait_until
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED

LAST_STEP = 10_000
#: It ends so many steps after it was widened, or is told to.
N_WIDE = 5
WAIT_S = 240.0

pytestmark = pytest.mark.timeout(600)

# All trials but the first are over at once, and show that there are many steps. The first one goes
# on until it has so many ranks as the test wants, however long that takes.
TRAIN = """
import os, time
import optuna, torch
import torch.distributed as dist
from tuner import ddp

LAST, N_WIDE, WANTED, SAVES = 10_000, 5, int(os.environ["WANTED"]), os.environ["SAVES"] == "1"

def train(trial):
    with ddp.group(trial):
        if trial.number:
            trial.report(0.0, step=LAST)
            return 0.0
        state = trial.load_checkpoint() or {"step": 0, "total": 0.0, "n_wide": 0}
        step, total, n_wide = state["step"], float(state["total"]), state["n_wide"]
        while n_wide < N_WIDE and not os.path.exists("enough"):
            step += 1
            n_wide += trial.world_size >= WANTED
            # The same on every rank, however many there are.
            ones = torch.ones(1, dtype=torch.float64)
            dist.all_reduce(ones)
            total += float(ones) / trial.world_size
            time.sleep(0.2 / trial.world_size)
            trial.report(total, step=step, ranks=trial.world_size)
            if trial.is_main:
                with open("steps.txt", "a") as file:
                    file.write(f"{step} {trial.world_size} {trial.attempt_number}\\n")
            if SAVES:
                trial.save_checkpoint(
                    {"step": step, "total": torch.tensor(total), "n_wide": n_wide}, step
                )
            if trial.should_prune():
                raise optuna.TrialPruned
        return total
"""


# A command that says itself how many processes it starts; it needs no torch for that.
SCRIPT = """
import json, pathlib, sys, time, zipfile

n_ranks, number, folder = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
if number:
    print(json.dumps({"step": 10_000, "value": 0.0}))
    sys.exit()
saved = [int(path.stem.removeprefix("step-")) for path in folder.glob("step-*.pt")]
step = max(saved, default=0)
n_wide = 0
while n_wide < 5:
    step, n_wide = step + 1, n_wide + (n_ranks > 1)
    time.sleep(0.1 / n_ranks)
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "partial", "w") as file:
        file.writestr("step", str(step))
    (folder / "partial").rename(folder / f"step-{step}.pt")
    print(json.dumps({"step": step, "value": float(step)}), flush=True)
"""


def a_study(
    folder: StudyFolder, *, n_ranks: int, n_devices: int, saves: bool = True, **keys: object
) -> None:
    folder.write("forecast.py", TRAIN)
    folder.env |= {"WANTED": str(n_devices), "SAVES": str(int(saves))}
    folder.study(
        **{
            "objectives": {"value": "maximize"},
            # Who is told to end does so at a step of its own choice, however busy this is.
            "trial": {
                "function": "forecast:train",
                "resources": {"cpus": n_ranks},
                "stop_grace": "5m",
            },
            "pruner": "none",
            "devices": f"cpu:{n_devices}",
            "budget": {"trials": 2},
            "widen": True,
            **keys,
        }
    )


def steps(folder: StudyFolder) -> list[tuple[int, int, int]]:
    """Step, ranks and attempt, as rank 0 went through them."""
    file = folder.path / "steps.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    found = [tuple(map(int, line.split())) for line in lines]
    return [(step, n_ranks, attempt) for step, n_ranks, attempt in found]


def of_the_first(folder: StudyFolder) -> list[AttemptRecord]:
    return [attempt for attempt in folder.attempts() if attempt.trial == 0]


def check_value(folder: StudyFolder) -> None:
    """It is what as many steps give as were done, each once."""
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{folder.path / 'small.db'}")
    trial = study.get_trials()[0]
    n_steps = max(step for step, _, _ in steps(folder))
    assert trial.values == [pytest.approx(n_steps)]
    assert sorted(trial.intermediate_values) == list(range(1, n_steps + 1))


def check_leases(folder: StudyFolder, widths: list[int]) -> None:
    """Each attempt had as many devices, none two at a time, and all are given back."""
    rows = folder.rows(
        "select a.number, l.device_id, l.leased_at, l.released_at from tuner_leases l "
        "join tuner_attempts a on a.id = l.attempt_id join trials t on t.trial_id = a.trial_id "
        "where t.number = 0 order by a.number"
    )
    by_attempt = {number: [row for row in rows if row[0] == number] for number, *_ in rows}
    assert [len(held) for held in by_attempt.values()] == widths
    assert all(released for *_, released in rows)
    ends = [
        (min(row[2] for row in held), max(row[3] for row in held)) for held in by_attempt.values()
    ]
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))


@pytest.mark.parametrize(
    ("n_ranks", "n_devices"), [(1, 2), pytest.param(2, 4, marks=pytest.mark.nightly)]
)
def test_the_last_trial_goes_on_on_twice_the_devices(
    study_folder: StudyFolder, n_ranks: int, n_devices: int
) -> None:
    a_study(study_folder, n_ranks=n_ranks, n_devices=n_devices)
    ended = study_folder.start().wait(WAIT_S)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    attempts = of_the_first(study_folder)
    assert [each.outcome for each in attempts] == ["paused", "completed"], ended.text
    done = steps(study_folder)
    assert [step for step, _, _ in done] == list(range(1, len(done) + 1)), "none twice"
    assert {(n, attempt) for _, n, attempt in done} == {(n_ranks, 1), (n_devices, 2)}
    check_value(study_folder)
    check_leases(study_folder, [n_ranks, n_devices])
    told = f"it continues on {n_devices} devices, not {n_ranks}."
    assert told in ended.out
    why = study_folder.tuner("why", "0").out
    assert told in why
    assert "attempt 2: completed" in why
    events = study_folder.rows("select detail from tuner_events where name = 'widened'")
    assert [detail for (detail,) in events] == [f"trial 0: No other trial waits: {told}"]


def test_a_dispatcher_killed_while_it_widens_loses_nothing(study_folder: StudyFolder) -> None:
    a_study(study_folder, n_ranks=1, n_devices=2)
    running = study_folder.start()
    asked = "select 1 from tuner_events where name = 'widened'"
    wait_until(
        lambda: (study_folder.path / "small.db").exists() and steps(study_folder) != [],
        "the first trial is at work",
        WAIT_S,
    )
    wait_until(lambda: study_folder.rows(asked) != [], "it is asked to go on wider", WAIT_S)
    running.signal(signal.SIGKILL)
    running.wait()
    study_folder.write("enough", "")
    ended = study_folder.start().wait(WAIT_S)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    outcomes = [each.outcome for each in of_the_first(study_folder)]
    assert outcomes.count("completed") == 1
    assert set(outcomes[:-1]) <= {"paused", "lost", "cancelled"}
    # What was saved when it was killed was not done again, but for the step under way.
    numbers = [step for step, _, _ in steps(study_folder)]
    assert len(numbers) - len(set(numbers)) <= 1
    check_value(study_folder)
    open_leases = "select count(*) from tuner_leases where released_at is null"
    assert study_folder.rows(open_leases) == [(0,)]


def test_a_program_without_checkpoints_is_never_widened(study_folder: StudyFolder) -> None:
    a_study(study_folder, n_ranks=1, n_devices=2, saves=False)
    running = study_folder.start()
    told = "has saved no checkpoint, so that it is not widened"
    wait_until(lambda: told in running.out, "people hear why", WAIT_S)
    study_folder.write("enough", "")
    ended = running.wait(WAIT_S)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert [each.outcome for each in of_the_first(study_folder)] == ["completed"]
    assert ended.out.count(told) == 1


def test_a_command_that_is_told_how_many_ranks_to_start_goes_on_on_more(
    study_folder: StudyFolder,
) -> None:
    study_folder.write("script.py", SCRIPT)
    command = ["python", "script.py", "{gpus}", "{trial_number}", "{checkpoint_dir}"]
    study_folder.study(
        objectives={"value": "maximize"},
        # It does not hear that it shall end before SIGTERM.
        trial={"command": command, "resources": {"cpus": 1}, "stop_grace": "1s"},
        pruner="none",
        devices="cpu:2",
        budget={"trials": 2},
        widen=True,
    )
    ended = study_folder.start().wait(WAIT_S)
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert [each.outcome for each in of_the_first(study_folder)] == ["paused", "completed"]
    check_leases(study_folder, [1, 2])


def test_a_dry_run_and_the_start_say_what_widen_does(study_folder: StudyFolder) -> None:
    a_study(study_folder, n_ranks=1, n_devices=2)
    told = "continues on more devices (up to 2) once no other waits for them"
    assert told in " ".join(study_folder.tune("--dry-run").out.split())
    a_study(study_folder, n_ranks=2, n_devices=2)
    assert "no trial is widened" in study_folder.tune("--dry-run").out
    study_folder.study(widen=True, trial={"command": ["python", "train.py"]})
    refused = study_folder.tune("--dry-run")
    assert refused.code == EXIT_BAD_INPUT
    assert "widen is true, but a trial here is one process" in refused.err
