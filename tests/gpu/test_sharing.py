"""Several trials on one real GPU: seen by NVML, held to their share, packed by `auto`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.e2e.study_folder import StudyFolder
from tuner.errors import EXIT_BUDGET_REACHED

pytestmark = pytest.mark.gpu

MIB = 1024**2
TRAIN = """
import time
import torch

MIB = 1024 ** 2

def train(trial):
    kept = torch.empty(trial.params["mib"] * MIB, dtype=torch.uint8, device=trial.device)
    for step in range(5):
        kept.add_(1)
        torch.cuda.synchronize()
        trial.report(trial.params["x"], step)
        time.sleep(0.4)
    return trial.params["x"]

def greedy(trial):
    total = torch.cuda.get_device_properties(0).total_memory
    torch.empty(total // 2, dtype=torch.uint8, device=trial.device)
    return 1.0
"""


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    if torch.cuda.device_count() == 0:
        pytest.skip("torch sees no NVIDIA GPU")
    path = tmp_path / "user"
    path.mkdir()
    folder = StudyFolder(path=path)
    folder.write("forecast.py", TRAIN)
    return folder


def a_study(folder: StudyFolder, resources: dict[str, object], n_trials: int, **keys: str) -> None:
    folder.study(
        trial={"function": "forecast:train", "resources": resources, **keys},
        search_space={"x": {"type": "float", "low": 0, "high": 1}, "mib": 1000},
        devices=[0],
        budget={"trials": n_trials},
    )


@pytest.mark.parametrize("resources", [{"gpus": 0.5}, {"memory": "4GiB"}, {"gpus": "auto"}])
def test_trials_share_a_gpu_and_their_peaks_are_recorded(
    folder: StudyFolder, resources: dict[str, object]
) -> None:
    a_study(folder, resources, n_trials=6)
    ended = folder.tune()
    assert ended.code == EXIT_BUDGET_REACHED, ended.text
    peaks = [peak for (peak,) in folder.rows("select peak_memory_bytes from tuner_attempts")]
    assert all(peak is not None and 1000 * MIB <= peak < 4000 * MIB for peak in peaks), peaks


def test_torch_is_held_to_its_share(folder: StudyFolder) -> None:
    a_study(folder, {"gpus": 0.25}, n_trials=1, function="forecast:greedy")
    folder.tune()
    first, again = folder.attempts()
    assert (first.outcome, first.cause) == ("out_of_memory", "device_memory")
    # With the GPU to itself it has the memory.
    assert again.outcome == "completed"
