"""A machine that is taken away (Slurm, spot): its trials go on elsewhere, where they were saved."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.study_folder import REPOSITORY, StudyFolder, wait_until
from tests.servers import Server
from tuner.errors import EXIT_BUDGET_REACHED, EXIT_INTERRUPTED

#: Two machines are one here; this gives each its name.
HOSTS = "import os, socket\nsocket.gethostname = lambda: os.environ['HOST_OF_TEST']\n"
# Waits in the middle, and writes down each step that it trains, with where.
RESUMES = """
import os, time
from pathlib import Path

import optuna

LOG = Path(os.environ["STEPS_LOG"])

def train(trial):
    state = trial.load_checkpoint()
    for step in range(state["step"] + 1 if state else 0, 8):
        with LOG.open("a") as log:
            log.write(f"{trial.number} {step} {os.environ['HOST_OF_TEST']}\\n")
        trial.save_checkpoint({"step": step}, step)
        trial.report(trial.params["x"], step)
        while not trial.should_prune() and step == 4 and not LOG.with_name("go").exists():
            trial.report(trial.params["x"], step)
            time.sleep(0.05)
        if trial.should_prune():
            raise optuna.TrialPruned
    return trial.params["x"]
"""


@pytest.fixture
def machines(
    study_folder: StudyFolder, postgresql: Server, tmp_path: Path
) -> Iterator[tuple[StudyFolder, StudyFolder]]:
    """Two folders with the same study in one database, on hosts of their own."""
    url = postgresql.new_database()
    (tmp_path / "hosts").mkdir()
    (tmp_path / "hosts" / "sitecustomize.py").write_text(HOSTS)
    (tmp_path / "second").mkdir()
    second = StudyFolder(path=tmp_path / "second", env=dict(study_folder.env))
    for folder, host, devices in ((study_folder, "first", "cpu:2"), (second, "second", "cpu:1")):
        folder.env |= {
            "STORAGE": url,
            "HOST_OF_TEST": host,
            "STEPS_LOG": str(tmp_path / "steps"),
            "PYTHONPATH": f"{tmp_path / 'hosts'}:{REPOSITORY}",
        }
        folder.write("forecast.py", RESUMES)
        folder.study(storage="${STORAGE}", pruner="none", devices=devices, budget={"trials": 2})
    yield study_folder, second
    study_folder.end_all()
    second.end_all()
    postgresql.drop_database(url)


def trained(tmp_path: Path) -> dict[int, list[tuple[int, str]]]:
    """By trial: the steps that were trained, with the host."""
    found: dict[int, list[tuple[int, str]]] = {}
    for line in (tmp_path / "steps").read_text().splitlines():
        trial, step, host = line.split()
        found.setdefault(int(trial), []).append((int(step), host))
    return found


def run_until_preempted(first: StudyFolder, tmp_path: Path) -> None:
    running = first.start()
    wait_until(
        lambda: (
            (tmp_path / "steps").exists()
            and [len(steps) for steps in trained(tmp_path).values()] == [5, 5]
        ),
        "two trials are in the middle",
    )
    running.signal(signal.SIGTERM)
    ended = running.wait()
    assert ended.code == EXIT_INTERRUPTED, ended.text
    (tmp_path / "go").touch()


def test_trials_go_on_from_a_shared_folder(
    machines: tuple[StudyFolder, StudyFolder], tmp_path: Path
) -> None:
    first, second = machines
    run_until_preempted(first, tmp_path)
    assert "2 checkpoints, the newest: step 4, " in first.tuner("why", "0").out
    (second.path / "tuner-files").symlink_to(first.path / "tuner-files")
    ended = second.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "starts again" not in ended.out
    # Nothing twice; the second trial had another device before.
    whole = [(step, "first" if step <= 4 else "second") for step in range(8)]
    assert trained(tmp_path) == {0: whole, 1: whole}
    told = second.tuner("why", "1").out
    assert "attempt 1: cancelled, so that the trial was to be run again" in told
    assert "on cpu:1 of first" in told
    assert "attempt 2: completed" in told
    assert "on cpu:0 of second" in told
    assert "reports: 8, the last at step 7" in told
    assert "2 checkpoints, the newest: step 7, " in told
    assert f"{second.path}/tuner-files/small/trial-1/checkpoints/step-7.pt on second" in told


def test_trials_begin_again_where_the_folder_is_not_shared_and_say_so(
    machines: tuple[StudyFolder, StudyFolder], tmp_path: Path
) -> None:
    first, second = machines
    run_until_preempted(first, tmp_path)
    ended = second.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    for number in range(2):
        path = f"{first.path}/tuner-files/small/trial-{number}/checkpoints/step-4.pt"
        assert (
            f"Trial {number} starts again from the beginning: the state that it saved at step 4 on "
            f"first, {path}, is not in {second.path}/" in ended.out
        )
    again = [(step, "first") for step in range(5)] + [(step, "second") for step in range(8)]
    assert trained(tmp_path) == {0: again, 1: again}
