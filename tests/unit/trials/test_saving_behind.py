"""`save_checkpoint(wait=False)`: the state as it was at the call, written behind training."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import threading
from collections import OrderedDict
from pathlib import Path
from typing import IO, Any

import pytest
import torch

from tests.unit.trials.conftest import NewTrial
from tests.unit.trials.recording_link import ATTEMPT, RecordingLink
from tuner.domain.attempt import Cause, Outcome
from tuner.domain.messages import Finished
from tuner.trials.saving.states import copy_to_cpu
from tuner.trials.worker.function_worker import finish_saving

ROOT = Path(__file__).parents[3]
COMPLETED = Finished(attempt_id=ATTEMPT, outcome=Outcome.COMPLETED, values={"accuracy": 1.0})
PRUNED = Finished(attempt_id=ATTEMPT, outcome=Outcome.PRUNED, cause=Cause.PRUNER)


class Disk:
    """Stands in for torch.save: writes when it may, or fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_write = threading.Event()
        self.error: OSError | None = None
        self._save = torch.save
        monkeypatch.setattr(torch, "save", self._write)

    def _write(self, state: dict[str, Any], file: IO[bytes]) -> None:
        if not isinstance(file, io.BytesIO):
            assert self.may_write.wait(60)
            if self.error:
                raise self.error
        self._save(state, file)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_state_is_that_of_the_call(new_trial: NewTrial, disk: Disk) -> None:
    trial = new_trial()
    weights = torch.zeros(3)
    counts = [1, 2]
    path = trial.save_checkpoint({"w": {"a": weights}, "n": counts}, step=1, wait=False)
    weights += 1
    counts.append(3)
    assert not path.exists(), "training goes on before it is written"
    disk.may_write.set()
    trial.wait_for_checkpoint()
    assert path.exists()
    state = trial.load_checkpoint()
    assert state is not None
    assert state["w"]["a"].tolist() == [0, 0, 0]
    assert state["n"] == [1, 2]


def test_loading_and_saving_wait_for_what_was_begun(new_trial: NewTrial, disk: Disk) -> None:
    trial = new_trial()
    trial.save_checkpoint({"step": 1}, step=1, wait=False)
    threading.Timer(0.05, disk.may_write.set).start()
    assert trial.load_checkpoint() == {"step": 1}
    for step in (2, 3, 4):
        trial.save_checkpoint({"step": step}, step=step, wait=step % 2 == 0)
    names = {path.name for path in trial.checkpoint_dir.iterdir()}
    assert names == {"step-3.pt", "step-4.pt"}


def test_error_is_told_once_by_the_next_call(new_trial: NewTrial, disk: Disk) -> None:
    trial = new_trial()
    disk.may_write.set()
    trial.save_checkpoint({"step": 1}, step=1)
    disk.error = OSError(28, "No space left on device")
    trial.save_checkpoint({"step": 2}, step=2, wait=False)
    with pytest.raises(OSError, match="No space left"):
        trial.save_checkpoint({"step": 3}, step=3, wait=False)
    disk.error = None
    assert trial.load_checkpoint() == {"step": 1}
    assert [path.name for path in trial.checkpoint_dir.iterdir()] == ["step-1.pt"]


def test_state_that_could_not_be_loaded_is_refused_at_once(new_trial: NewTrial) -> None:
    trial = new_trial()
    with pytest.raises(TypeError, match="cannot be loaded again safely"):
        trial.save_checkpoint({"w": torch.ones(1), "path": Path("x")}, step=1, wait=False)
    trial.wait_for_checkpoint()
    assert trial.load_checkpoint() is None


def test_other_ranks_save_nothing(new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    trial = new_trial()
    path = trial.save_checkpoint({"step": 1}, step=1, wait=False)
    trial.wait_for_checkpoint()
    assert not path.exists()


def test_sharded_always_waits(new_trial: NewTrial) -> None:
    with pytest.raises(ValueError, match=r"sharded=True has no wait=False\. Leave it out\."):
        new_trial().save_checkpoint({}, step=1, wait=False, sharded=True)


def test_copy_is_of_the_same_types() -> None:
    model = torch.nn.BatchNorm1d(2)
    state = {"m": model.state_dict(), "l": [torch.ones(1), (1, None)], "s": {1}, "b": b"x"}
    copy = copy_to_cpu(state)
    assert type(copy["m"]) is OrderedDict
    assert copy["m"]._metadata == state["m"]._metadata  # type: ignore[attr-defined]
    assert copy["m"]["weight"].data_ptr() != model.weight.data_ptr()
    assert not copy["m"]["weight"].requires_grad
    assert copy["l"][1] == (1, None)
    assert (copy["s"], copy["b"]) == ({1}, b"x")


# -- the end of a trial --------------------------------------------------------------------------


def test_result_waits_for_the_last_checkpoint(
    new_trial: NewTrial, link: RecordingLink, disk: Disk
) -> None:
    trial = new_trial()
    path = trial.save_checkpoint({"step": 1}, step=1, wait=False)
    before = signal.getsignal(signal.SIGTERM)
    threading.Timer(0.05, disk.may_write.set).start()
    assert finish_saving(trial, link, COMPLETED) == COMPLETED  # type: ignore[arg-type]
    assert path.exists()
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("ending", [COMPLETED, PRUNED])
def test_last_checkpoint_that_failed_fails_a_trial_that_completed(
    new_trial: NewTrial,
    link: RecordingLink,
    disk: Disk,
    capfd: pytest.CaptureFixture[str],
    ending: Finished,
) -> None:
    disk.error = OSError(28, "No space left on device")
    disk.may_write.set()
    trial = new_trial()
    trial.save_checkpoint({"step": 1}, step=1, wait=False)
    finished = finish_saving(trial, link, ending)  # type: ignore[arg-type]
    assert "No space left on device" in capfd.readouterr().err
    if ending is PRUNED:
        assert finished == PRUNED
    else:
        assert finished.outcome is Outcome.FAILED
        assert "No space left on device" in finished.detail


def test_sigterm_does_not_interrupt_the_last_save(
    new_trial: NewTrial, link: RecordingLink, disk: Disk
) -> None:
    trial = new_trial()
    path = trial.save_checkpoint({"step": 1}, step=1, wait=False)

    def terminate() -> None:
        signal.raise_signal(signal.SIGTERM)
        disk.may_write.set()

    threading.Timer(0.05, terminate).start()
    finish_saving(trial, link, PRUNED)  # type: ignore[arg-type]
    assert path.exists()


@pytest.mark.slow
@pytest.mark.parametrize("is_full", [False, True])
def test_script_alone_waits_at_its_end(tmp_path: Path, is_full: bool) -> None:
    if is_full:
        (tmp_path / "checkpoints").write_text("no folder")
    code = "import tuner; tuner.current().save_checkpoint({'step': 1}, step=1, wait=False)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (tmp_path / "checkpoints/defaults/step-1.pt").exists() != is_full
    assert ("The last checkpoint could not be saved" in done.stderr) == is_full
