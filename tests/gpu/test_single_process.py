"""Trials whose only process uses all of their GPUs: the examples for it, as they stand."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.integration.trials.ranks import run_ranks, values_of
from tuner.trials.context import TrialContext

pytestmark = pytest.mark.gpu

EXAMPLES = Path(__file__).parents[2] / "examples"
PARAMS = {"lr": 1e-2, "width": 64, "n_channels": 8, "batch_size": 64, "epochs": 3}


@pytest.fixture
def gpus() -> tuple[str, ...]:
    """Names of the GPUs, at most two."""
    n_gpus = torch.cuda.device_count()
    if n_gpus == 0:
        pytest.skip("torch sees no NVIDIA GPU")
    return tuple(f"GPU {index}" for index in range(min(2, n_gpus)))


def _example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / name / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _used_gpus() -> list[int]:
    n_gpus = torch.cuda.device_count()
    return [index for index in range(n_gpus) if torch.cuda.max_memory_allocated(index) > 0]


def _data_parallel(trial: TrialContext) -> tuple[float, list[int]]:
    return _example("data_parallel").train(trial), _used_gpus()


def _split_model(trial: TrialContext) -> tuple[float, list[int]]:
    return _example("split_model").train(trial), _used_gpus()


@pytest.mark.parametrize("program", [_data_parallel, _split_model])
def test_all_gpus_of_the_trial_are_used(
    program: object, gpus: tuple[str, ...], tmp_path: Path
) -> None:
    ((accuracy, used),) = values_of(
        run_ranks(program, tmp_path, world_size=1, devices=gpus, params=PARAMS)  # type: ignore[arg-type]
    )
    assert accuracy > 0.7
    assert used == list(range(len(gpus)))


def _fill(trial: TrialContext) -> list[str]:
    parts = [torch.ones(4, device=device) for device in trial.devices]
    return [str(part.device) for part in parts]


def test_devices_are_those_of_the_trial_in_their_order(
    gpus: tuple[str, ...], tmp_path: Path
) -> None:
    (found,) = values_of(run_ranks(_fill, tmp_path, world_size=1, devices=gpus))
    assert found == [f"cuda:{index}" for index in range(len(gpus))]
