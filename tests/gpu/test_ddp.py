"""`tuner.ddp` with NCCL: one rank on each GPU of this machine; some need two GPUs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import optuna
import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.integration.trials.ranks import Rank, run_ranks, values_of
from tuner import ddp
from tuner.trials.context import TrialContext

pytestmark = pytest.mark.gpu


@pytest.fixture
def gpus() -> tuple[str, ...]:
    """Names of the GPUs, one for each rank."""
    n_gpus = torch.cuda.device_count()
    if n_gpus == 0:
        pytest.skip("torch sees no NVIDIA GPU")
    return tuple(f"GPU {index}" for index in range(n_gpus))


@pytest.fixture
def several_gpus(gpus: tuple[str, ...]) -> tuple[str, ...]:
    if len(gpus) < 2:
        pytest.skip("this machine has one GPU, and NCCL takes one rank on each")
    return gpus[:2]


def _on(gpus: tuple[str, ...], program: Any, folder: Path) -> list[Rank]:
    return run_ranks(program, folder, world_size=len(gpus), devices=gpus)


def _train(trial: TrialContext) -> tuple[str, str, float, dict[str, Any]]:
    """Three steps, each rank with its part of one batch."""
    with ddp.group(trial):
        torch.manual_seed(0)
        model = ddp.wrap(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)), trial)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        samples = torch.arange(8.0 * 8).reshape(8, 8)[trial.rank :: trial.world_size] / 64
        for _ in range(3):
            loss = model(samples.to(trial.device)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        state = {name: value.cpu() for name, value in ddp.state_of(model).items()}
        return dist.get_backend(), str(trial.device), ddp.mean(loss, trial), state


def test_model_is_trained_alike_on_all_gpus(gpus: tuple[str, ...], tmp_path: Path) -> None:
    if 8 % len(gpus):
        pytest.skip(f"eight samples are not shared evenly by {len(gpus)} GPUs")
    found = values_of(_on(gpus, _train, tmp_path))
    (_, _, loss_of_one, state_of_one), *_ = values_of(_on(gpus[:1], _train, tmp_path))
    assert [backend for backend, *_ in found] == ["nccl"] * len(gpus)
    assert [device for _, device, *_ in found] == [f"cuda:{n}" for n in range(len(gpus))]
    for _, _, loss, state in found:
        assert loss == pytest.approx(loss_of_one, rel=1e-4)
        for name, value in state_of_one.items():
            torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-5)


def _prune(trial: TrialContext) -> None:
    with ddp.group(trial):
        dist.barrier()
        raise optuna.TrialPruned("weak")


def test_pruned_ranks_leave_together(gpus: tuple[str, ...], tmp_path: Path) -> None:
    ranks = _on(gpus, _prune, tmp_path)
    assert [rank.error for rank in ranks] == ["TrialPruned: weak"] * len(gpus)


def _fail_amid_a_collective(trial: TrialContext) -> float:
    began_s = 0.0
    try:
        with ddp.group(trial):
            dist.barrier()
            if trial.is_main:
                # Rank 1 takes no part: on rank 0's GPU this waits for it.
                dist.all_reduce(torch.ones(1, device=trial.device))
            began_s = time.monotonic()
            raise ValueError("an accident")
    except ValueError:
        return time.monotonic() - began_s


def test_failing_rank_leaves_although_a_collective_is_under_way(
    several_gpus: tuple[str, ...], tmp_path: Path
) -> None:
    for took_s in values_of(_on(several_gpus, _fail_amid_a_collective, tmp_path)):
        assert took_s < 2 * ddp.LEAVE_TIMEOUT_S


def _fail_and_start_again(trial: TrialContext) -> float:
    """A program that survives its own error may join again."""
    with pytest.raises(ValueError, match="an accident"), ddp.group(trial):
        raise ValueError("an accident")
    with ddp.group(trial):
        total = torch.ones(1, device=trial.device)
        dist.all_reduce(total)
        return total.item()


def test_group_can_be_joined_again_after_an_error(gpus: tuple[str, ...], tmp_path: Path) -> None:
    assert values_of(_on(gpus[:1], _fail_and_start_again, tmp_path)) == [1.0]


def _train_deterministically(trial: TrialContext) -> list[float]:
    trial.seed_everything(deterministic=True)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 10))
    model = model.to(trial.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        with trial.autocast():
            loss = model(torch.rand(16, 1, 8, 8, device=trial.device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_one_seed_gives_one_result(gpus: tuple[str, ...], tmp_path: Path) -> None:
    once, again = (_on(gpus[:1], _train_deterministically, tmp_path) for _ in range(2))
    assert values_of(once) == values_of(again)


def _dtype(trial: TrialContext) -> str:
    weights = torch.ones(2, 2, device=trial.device)
    with trial.autocast():
        return str((weights @ weights).dtype)


def test_autocast_takes_what_the_gpu_has(gpus: tuple[str, ...], tmp_path: Path) -> None:
    (dtype,) = values_of(_on(gpus[:1], _dtype, tmp_path))
    has_bfloat16 = torch.cuda.get_device_capability(0) >= (8, 0)
    assert dtype == ("torch.bfloat16" if has_bfloat16 else "torch.float16")
