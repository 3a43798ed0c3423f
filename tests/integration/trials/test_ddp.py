"""What `tuner.ddp` gives a program on several ranks, with two real processes and gloo."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import IterableDataset, TensorDataset

from tests.integration.trials.ranks import environment_of_rank, run_ranks, values_of
from tests.unit.trials.conftest import NewTrial
from tuner import ddp
from tuner.trials.context import TrialContext

# Beside the tests of the tuner itself, in one process with them, its ranks have ended at once.
pytestmark = pytest.mark.programs

#: A rank that waits as long is ended by the test's own limit before.
_FOREVER_S = 1000.0


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))


# -- the group -----------------------------------------------------------------------------------


def _count(trial: TrialContext) -> tuple[float, str, set[str]]:
    with ddp.group(trial):
        total = torch.ones(1)
        dist.all_reduce(total)
        connections = psutil.Process().net_connections("inet")
        listening_on = {each.laddr.ip for each in connections if each.status == "LISTEN"}
        return total.item(), dist.get_backend(), listening_on


def test_ranks_find_each_other_and_nobody_else_can_reach_them(tmp_path: Path) -> None:
    assert values_of(run_ranks(_count, tmp_path)) == [(2.0, "gloo", {"127.0.0.1"})] * 2


def _prune_both(trial: TrialContext) -> None:
    ddp.LEAVE_TIMEOUT_S = _FOREVER_S
    with ddp.group(trial):
        dist.barrier()
        raise optuna.TrialPruned("weak")


def test_pruned_ranks_leave_together(tmp_path: Path) -> None:
    ranks = run_ranks(_prune_both, tmp_path)
    assert [rank.error for rank in ranks] == ["TrialPruned: weak"] * 2


def _fail_on_rank_1(trial: TrialContext) -> None:
    with ddp.group(trial, timeout_s=_FOREVER_S):
        dist.barrier()
        if not trial.is_main:
            raise ValueError("rank 1 had an accident")
        dist.all_reduce(torch.ones(1))


def test_other_rank_hears_at_once_of_one_that_failed(tmp_path: Path) -> None:
    main, other = run_ranks(_fail_on_rank_1, tmp_path)
    assert other.error == "ValueError: rank 1 had an accident"
    assert main.error is not None
    assert main.error.startswith("RuntimeError")


def _fail_amid_a_collective(trial: TrialContext) -> str:
    ddp.LEAVE_TIMEOUT_S = 0.1
    try:
        with ddp.group(trial, timeout_s=_FOREVER_S):
            if not trial.is_main:
                # Never comes: rank 1 takes no part in the collective, and ends with rank 0.
                dist.recv(torch.ones(1), src=0)
            under_way = dist.all_reduce(torch.ones(1), async_op=True)
            raise ValueError(f"an accident amid {under_way}")
    except ValueError:
        return "left"
    return ""


def test_failing_rank_leaves_although_a_collective_is_under_way(tmp_path: Path) -> None:
    main, other = run_ranks(_fail_amid_a_collective, tmp_path)
    assert main.error is None
    assert main.value == "left"
    assert other.error is not None


def test_taken_port_is_named(new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", 0))
        squatter.listen()
        port = squatter.getsockname()[1]
        for name, value in environment_of_rank(0, 2, port).items():
            monkeypatch.setenv(name, value)
        taken = rf"\[Errno {errno.EADDRINUSE}\] Address already in use: 127.0.0.1:{port}"
        with pytest.raises(OSError, match=taken), ddp.group(new_trial()):
            pass


def test_one_rank_needs_no_port(new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    trial = new_trial()
    with ddp.group(trial):
        total = torch.ones(1)
        dist.all_reduce(total)
        assert total.item() == dist.get_world_size() == 1
    assert not dist.is_initialized()


# -- numbers -------------------------------------------------------------------------------------


def _means(trial: TrialContext) -> tuple[float, float]:
    with ddp.group(trial):
        return ddp.mean(0.25 + trial.rank, trial), ddp.mean(torch.tensor(trial.rank), trial)


def test_mean_over_the_ranks_is_the_same_on_each(tmp_path: Path) -> None:
    assert values_of(run_ranks(_means, tmp_path)) == [(0.75, 0.5)] * 2


def test_mean_of_one_rank_needs_no_group(new_trial: NewTrial) -> None:
    assert ddp.mean(torch.tensor(0.25, requires_grad=True), new_trial()) == 0.25


# -- models --------------------------------------------------------------------------------------


def _gradients(trial: TrialContext) -> tuple[str, dict[str, Any], list[float], list[str]]:
    """Of a step in which each rank has its own half of four samples."""
    samples = torch.arange(8.0).reshape(4, 2)[trial.rank :: trial.world_size]
    with ddp.group(trial):
        torch.manual_seed(0)
        model = ddp.wrap(nn.Linear(2, 1), trial, gradient_as_bucket_view=True)
        model(samples).mean().backward()
        gradient = ddp.unwrap(model).weight.grad
        return (
            type(model).__name__,
            ddp.state_of(model),
            gradient.tolist(),
            list(model.state_dict()),
        )


def test_wrapped_model_averages_gradients_and_keeps_its_names(tmp_path: Path) -> None:
    torch.manual_seed(0)
    alone = nn.Linear(2, 1)
    alone(torch.arange(8.0).reshape(4, 2)).mean().backward()
    for name, state, gradient, wrapped_names in values_of(run_ranks(_gradients, tmp_path)):
        assert name == "DistributedDataParallel"
        assert wrapped_names == ["module.weight", "module.bias"]
        assert list(state) == ["weight", "bias"]
        assert all(torch.equal(state[key], value) for key, value in alone.state_dict().items())
        assert gradient == alone.weight.grad.tolist()  # type: ignore[union-attr]


def _shard(trial: TrialContext) -> tuple[dict[str, Any], tuple[int, ...]]:
    with ddp.group(trial):
        from torch.distributed.fsdp import fully_shard  # Takes a second, in each rank.

        model = fully_shard(_model())
        part = next(model.parameters()).to_local()
        return ddp.state_of(model), tuple(part.shape)


def test_sharded_model_is_gathered_on_rank_0(tmp_path: Path) -> None:
    (state, shape), (other_state, other_shape) = values_of(run_ranks(_shard, tmp_path))
    assert shape == other_shape == (4, 4)
    whole = _model().state_dict()
    assert list(state) == list(whole)
    assert all(torch.equal(state[name], whole[name]) for name in whole)
    assert other_state == {}


def test_one_rank_has_the_model_itself(new_trial: NewTrial) -> None:
    model = _model()
    assert ddp.wrap(model, new_trial()) is model
    assert ddp.unwrap(model) is model


@pytest.mark.parametrize(
    "wrapped",
    [
        nn.DataParallel(_model()),
        torch.compile(_model(), backend="eager"),
        torch.compile(nn.DataParallel(_model()), backend="eager"),
    ],
    ids=["DataParallel", "compiled", "both"],
)
def test_state_has_the_names_of_the_model_inside(wrapped: nn.Module) -> None:
    assert list(ddp.state_of(wrapped)) == list(_model().state_dict())


# -- data ----------------------------------------------------------------------------------------


def _epochs(
    trial: TrialContext, monkeypatch: pytest.MonkeyPatch, *, rank: int, **arguments: Any
) -> list[list[int]]:
    """Two epochs of what a rank of two gets from the numbers 0 to 9."""
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    numbers = TensorDataset(torch.arange(10))
    batches = ddp.loader(numbers, trial, batch_size=2, **arguments)
    return [[int(n) for (batch,) in batches for n in batch] for _ in range(2)]


def test_ranks_share_the_data_anew_in_each_epoch(
    new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (_epochs(new_trial(), monkeypatch, rank=rank) for rank in range(2))
    for mine, others in zip(first, second, strict=True):
        assert sorted(mine + others) == list(range(10))
    assert first[0] != first[1]
    assert set(first[0]) != set(first[1])


def test_order_follows_from_the_seed(new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    once, again = (_epochs(new_trial(), monkeypatch, rank=0) for _ in range(2))
    assert once == again


def test_data_in_order_stay_in_order(new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [_epochs(new_trial(), monkeypatch, rank=rank, shuffle=False) for rank in range(2)]
    assert found == [[[0, 2, 4, 6, 8]] * 2, [[1, 3, 5, 7, 9]] * 2]


def test_resumed_epoch_has_the_order_that_it_had(new_trial: NewTrial) -> None:
    def batches() -> Any:
        return ddp.loader(TensorDataset(torch.arange(10)), new_trial(), batch_size=10)

    loader = batches()
    epochs = [next(iter(loader))[0].tolist() for _ in range(3)]
    resumed = batches()
    resumed.sampler.set_epoch(2)
    assert next(iter(resumed))[0].tolist() == epochs[2]


def test_workers_of_each_rank_are_seeded_differently(
    new_trial: NewTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", "2")
        batches = ddp.loader(TensorDataset(torch.arange(4)), new_trial(), batch_size=1)
        seeds.append(batches.generator.initial_seed())
    assert seeds[0] == new_trial().seed != seeds[1]


def test_arguments_reach_the_loader(new_trial: NewTrial) -> None:
    numbers = TensorDataset(torch.arange(10))
    batches = ddp.loader(numbers, new_trial(), batch_size=4, drop_last=True)
    assert [len(batch) for (batch,) in batches] == [4, 4]


def test_stream_is_refused(new_trial: NewTrial) -> None:
    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(range(3))

    with pytest.raises(TypeError, match=r"no length. Split a stream by trial\.rank"):
        ddp.loader(Stream(), new_trial(), batch_size=1)
