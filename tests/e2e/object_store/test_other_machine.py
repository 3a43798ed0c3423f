"""Checkpoints and logs in an object store, for folders that share nothing but a database."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.study_folder import StudyFolder, wait_until
from tests.object_stores import NewBucket, StoreServer
from tuner.errors import EXIT_BAD_INPUT, EXIT_BUDGET_REACHED, EXIT_INTERRUPTED

pytestmark = [pytest.mark.programs, pytest.mark.slow]

#: Writes each step that it trains into a file that both machines see; slow until `fast` is there.
_PROGRAM = """
import os, time
import torch

SEEN = {seen!r}

def train(trial):
    state = trial.load_checkpoint()
    first = state["step"] + 1 if state else 1
    print("begins at step", first, flush=True)
    for step in range(first, 9):
        with open(SEEN, "a") as file:
            file.write(f"{{trial.number}} {{step}}\\n")
        trial.report(float(step), step)
        trial.save_checkpoint({{"step": step, "w": torch.zeros(100)}}, step)
        while step >= 4 and not os.path.exists(SEEN + ".fast"):
            time.sleep(0.05)
            if trial.should_prune():
                raise SystemExit
    return float(step)
"""
_LOAD = "import tuner; print(tuner.load_best({!r}).load_checkpoint())"


@pytest.fixture
def machines(
    study_folder: StudyFolder, tmp_path: Path, bucket: NewBucket
) -> Iterator[Callable[..., StudyFolder]]:
    """Folders of two machines: one study, one database, one bucket, no file in common."""
    made: list[StudyFolder] = []

    def make(name: str, **keys: object) -> StudyFolder:
        path = tmp_path / name
        path.mkdir()
        folder = StudyFolder(path=path, env={**study_folder.env, **bucket.environ})
        folder.write("steps.py", _PROGRAM.format(seen=str(tmp_path / "seen")))
        folder.study(
            **{
                "storage": f"sqlite:///{tmp_path}/small.db",
                "trial": {"function": "steps:train"},
                "objectives": {"value": "maximize"},
                "pruner": "none",
                "budget": {"trials": 2},
                "checkpoints": {"store": bucket.address.url},
                **keys,
            }
        )
        made.append(folder)
        return folder

    yield make
    for folder in made:
        folder.end_all()


def seen(tmp_path: Path) -> list[str]:
    path = tmp_path / "seen"
    return path.read_text().splitlines() if path.exists() else []


def test_interrupted_trials_continue_on_another_machine_and_repeat_nothing(
    machines: Callable[..., StudyFolder], tmp_path: Path, bucket: NewBucket
) -> None:
    first = machines("first")
    running = first.start()
    wait_until(lambda: {"0 4", "1 4"} <= set(seen(tmp_path)), "both trials are at step 4")
    running.signal(signal.SIGTERM)
    assert running.wait().code == EXIT_INTERRUPTED
    (tmp_path / "seen.fast").touch()
    second = machines("second")
    ended = second.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert "Trial 0 continues from step 4, fetched from" in ended.out
    # No step was trained twice, and none is missing.
    assert sorted(seen(tmp_path)) == sorted(f"{n} {step}" for n in (0, 1) for step in range(1, 9))
    _logs_and_best_are_found(first, second, bucket)


@pytest.mark.nightly  # On S3 by day: see above. The requests of both: test_bucket.py.
@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_trials_continue_from_google_and_azure(
    machines: Callable[..., StudyFolder],
    tmp_path: Path,
    store_server: StoreServer,
    request: pytest.FixtureRequest,
    scheme: str,
) -> None:
    if scheme == "az":
        url = request.getfixturevalue("azure_container").url
        environ = {name: value for name, value in os.environ.items() if name.startswith("AZUR")}
    else:
        new = store_server.new_bucket(scheme)
        url, environ = new.address.url, new.environ
    first, second = (machines(name, checkpoints={"store": url}) for name in ("first", "second"))
    first.env |= environ
    second.env |= environ
    running = first.start()
    wait_until(lambda: {"0 4", "1 4"} <= set(seen(tmp_path)), "both trials are at step 4")
    running.signal(signal.SIGTERM)
    assert running.wait().code == EXIT_INTERRUPTED
    (tmp_path / "seen.fast").touch()
    ended = second.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    assert sorted(seen(tmp_path)) == sorted(f"{n} {step}" for n in (0, 1) for step in range(1, 9))
    words = ("delete", "study.yaml", "--study", "small", "--files", "--yes")
    deleted = second.tuner(*words)
    assert re.search(rf"and \d+ objects in {url}/small-", deleted.out), deleted.text


def _logs_and_best_are_found(first: StudyFolder, second: StudyFolder, bucket: NewBucket) -> None:
    """From the machine on which the trials did not end."""
    (newest,) = first.tuner("logs", "0").out.splitlines()
    assert newest == "begins at step 5"
    assert first.tuner("logs", "0", "--attempt", "1").out.splitlines() == ["begins at step 1"]
    # Now neither machine has it.
    (second.path / "tuner-files").rename(second.path / "gone")
    (best,) = json.loads(first.best("--format", "json").out)
    assert best["checkpoint"].startswith(f"{bucket.address.url}/small-")
    url = first.path.parent / "small.db"
    loaded = first.python("-c", _LOAD.format(f"sqlite:///{url}"))
    assert "'step': 8" in loaded.out, loaded.text


def test_dispatcher_that_is_killed_before_it_records_an_upload_uploads_nothing_twice(
    machines: Callable[..., StudyFolder], tmp_path: Path, bucket: NewBucket
) -> None:
    folder = machines("first", budget={"trials": 1}, devices="cpu:1")
    running = folder.start()
    wait_until(lambda: "0 4" in seen(tmp_path), "the trial is at step 4")
    wait_until(lambda: any("step-4." in key for key in bucket.names()), "step 4 is uploaded")
    # Whether that is recorded by now or not: what follows must hold.
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.wait(30)
    folder.execute("DELETE FROM tuner_uploads", database="../small.db")
    (tmp_path / "seen.fast").touch()
    ended = folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    uploads = folder.rows("SELECT uri FROM tuner_uploads", database="../small.db")
    names = [uri.removeprefix(f"{bucket.address.url}/") for (uri,) in uploads]
    assert set(names) <= set(bucket.names())
    assert any("step-8." in name for name in names)
    assert sorted(seen(tmp_path)) == sorted(f"0 {step}" for step in range(1, 9))


def test_objects_of_trials_that_are_not_kept_go(
    machines: Callable[..., StudyFolder], tmp_path: Path, bucket: NewBucket
) -> None:
    (tmp_path / "seen.fast").touch()
    keys = {"store": bucket.address.url, "keep": "best 1", "newest": 1}
    folder = machines("first", checkpoints=keys, budget={"trials": 3})
    assert folder.tune().code == EXIT_BUDGET_REACHED
    states = [key for key in bucket.names() if "step-" in key]
    assert len(states) == 1
    assert "trial-0/attempt-1/step-8." in states[0]
    logs = [key for key in bucket.names() if key.endswith(".log")]
    assert len(logs) == 3
    _objects_go_with_the_study(folder, bucket)


def test_objects_above_the_limit_go_and_those_of_the_best_stay(
    machines: Callable[..., StudyFolder], tmp_path: Path, bucket: NewBucket
) -> None:
    (tmp_path / "seen.fast").touch()
    keys = {"store": bucket.address.url, "newest": 1, "max_disk": "4KiB"}
    assert machines("first", checkpoints=keys).tune("--trials", "5").code == EXIT_BUDGET_REACHED
    states = [key for key in bucket.names() if "step-" in key]
    sizes = [bucket.open().size_of(f"p/{key}") for key in states]
    assert sum(size or 0 for size in sizes) <= 4096
    assert 0 < len(states) < 5
    assert any("trial-0/attempt-1/step-8." in key for key in states)


def _objects_go_with_the_study(folder: StudyFolder, bucket: NewBucket) -> None:
    others = "small-5f1c/trial-0/attempt-1/step-8.pt"
    bucket.open().put(f"p/{others}", b"of another study")
    words = ("delete", "study.yaml", "--study", "small", "--files")
    asked = folder.tuner(*words)
    assert re.search(rf"and 4 objects in {bucket.address.url}/small-[0-9a-f]+\?", asked.err)
    folder.env["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1"
    refused = folder.tuner(*words, "--yes")
    assert refused.code == EXIT_BAD_INPUT
    assert "cannot be listed: checkpoints.store s3://" in refused.err
    folder.env |= bucket.environ
    assert folder.tuner(*words, "--yes").code == 0
    assert bucket.names() == [others, "tuner-access-check.txt"]
