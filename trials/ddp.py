"""Helpers for trials with several ranks, one process per device:

    def train(trial):
        with ddp.group(trial):
            model = ddp.wrap(build_model(), trial)
            batches = ddp.loader(dataset, trial, batch_size=64)
            ...

The same program runs on one rank, on GPUs and on CPU slots, under the tuner and under torchrun.
The helpers use `torch.distributed`, and can be mixed with it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sized
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from optuna import TrialPruned
from torch import nn
from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import Store
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from tuner.trials.context import TrialContext
from tuner.trials.rendezvous import store_of_ranks, use_loopback_interface

__all__ = ["AdvancingSampler", "group", "loader", "mean", "state_of", "unwrap", "wrap"]

_T = TypeVar("_T")

#: Seconds that a rank waits for the others at the end, and for its connections to close.
LEAVE_TIMEOUT_S = 5.0
_ALL_LEFT = "tuner/all_left"


# -- the process group ---------------------------------------------------------------------------


@contextlib.contextmanager
def group(
    trial: TrialContext, backend: str | None = None, timeout_s: float | None = None
) -> Iterator[None]:
    """Joins torch's default process group with the other ranks, and leaves it at the end.

    The end does not hang. After a normal end or `TrialPruned` the ranks leave together. After any
    other error this rank aborts its collectives and leaves at once, and the tuner ends the other
    ranks. Both take a few seconds at most.

    Args:
        trial: The trial. With one rank the group has one member.
        backend: A backend of torch; the default is `nccl` on GPUs and `gloo` on CPUs.
        timeout_s: How long a collective waits for a rank that hangs, in seconds; the default is
            that of torch, 10 minutes for nccl and 30 for gloo.

    Raises:
        OSError: If the port where the ranks connect is in use.
        RuntimeError: If a rank does not connect.
    """
    store = _join(trial, backend, timeout_s)
    has_failed = True
    try:
        yield
        has_failed = False
    except TrialPruned:
        has_failed = False
        raise
    finally:
        if has_failed:
            _at_most(LEAVE_TIMEOUT_S, _abort)
        else:
            leave(store, trial.world_size)


def leave(store: Store, world_size: int) -> None:
    """Leaves the process group together with the other ranks. Takes a few seconds at most.

    Args:
        store: The store that the ranks share.
        world_size: Number of ranks.
    """
    _wait_for_all(store, world_size)
    if dist.is_initialized():
        _at_most(LEAVE_TIMEOUT_S, dist.destroy_process_group)


def mean(value: float | torch.Tensor, trial: TrialContext) -> float:
    """Returns the mean of a number over all ranks. Every rank must call it."""
    own = value.detach() if isinstance(value, torch.Tensor) else value
    if trial.world_size == 1:
        return float(own)
    total = torch.tensor(float(own), dtype=torch.float64, device=trial.device)
    dist.all_reduce(total)
    return float(total) / trial.world_size


def _join(trial: TrialContext, backend: str | None, timeout_s: float | None) -> Store:
    is_on_gpu = trial.device.type == "cuda"
    if is_on_gpu:
        torch.cuda.set_device(trial.device)
    else:
        use_loopback_interface()
    timeout = None if timeout_s is None else timedelta(seconds=timeout_s)
    store = store_of_ranks(
        trial.rank, trial.world_size, timeout or distributed_c10d.default_pg_timeout
    )
    dist.init_process_group(
        backend or ("nccl" if is_on_gpu else "gloo"),
        store=store,
        rank=trial.rank,
        world_size=trial.world_size,
        timeout=timeout,
        device_id=trial.device if is_on_gpu else None,
    )
    return store


def _wait_for_all(store: Store, world_size: int) -> None:
    """Waits until all ranks are done: a closed connection looks like a crash."""
    with contextlib.suppress(dist.DistError):
        if store.add("tuner/n_left", 1) == world_size:
            store.set(_ALL_LEFT, "")
        store.wait([_ALL_LEFT], timedelta(seconds=LEAVE_TIMEOUT_S))


def _abort() -> None:
    # torch 2.4 and 2.5 have no such function.
    abort: Callable[[], None] = getattr(
        distributed_c10d, "_abort_process_group", dist.destroy_process_group
    )
    abort()


def _at_most(limit_s: float, action: Callable[[], None]) -> None:
    """Lets an action continue in the background if it takes longer.

    gloo waits for a collective in progress until its timeout, and nccl for a peer that is gone;
    neither can be interrupted.
    """
    thread = threading.Thread(target=action, name="leave-process-group", daemon=True)
    thread.start()
    thread.join(limit_s)


# -- models --------------------------------------------------------------------------------------


def wrap(model: nn.Module, trial: TrialContext, **ddp_arguments: Any) -> nn.Module:
    """Moves a model to the device of the trial and, with several ranks, averages its gradients.

    Args:
        model: The same on every rank.
        trial: The trial. Its group must have been joined.
        **ddp_arguments: For `torch.nn.parallel.DistributedDataParallel`.

    Returns:
        A `DistributedDataParallel`; with one rank the model itself.
    """
    model = model.to(trial.device)
    if trial.world_size == 1:
        return model
    device_ids = [trial.device] if trial.device.type == "cuda" else None
    return nn.parallel.DistributedDataParallel(model, device_ids=device_ids, **ddp_arguments)


def unwrap(model: nn.Module) -> nn.Module:
    """Returns the model inside DistributedDataParallel, DataParallel and torch.compile."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            model = model.module
        elif isinstance(compiled := getattr(model, "_orig_mod", None), nn.Module):
            model = compiled
        else:
            return model


def state_of(model: nn.Module) -> dict[str, Any]:
    """Returns the state dict of the unwrapped model.

    If the model is sharded (FSDP2), every rank must call it: rank 0 gets the whole state on the
    CPU, and the others get an empty dict. Otherwise any rank may call it alone, and the tensors
    are those of the model, as with `state_dict()`.
    """
    whole = unwrap(model)
    if not any(hasattr(parameter, "full_tensor") for parameter in whole.parameters()):
        return whole.state_dict()
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return get_model_state_dict(whole, options=options)


# -- data ----------------------------------------------------------------------------------------


class AdvancingSampler(DistributedSampler[_T]):
    """A `DistributedSampler` that shuffles in a new order in each epoch without `set_epoch`.

    A program that resumes at epoch n may call `set_epoch(n)` to continue with the same orders.
    """

    def __iter__(self) -> Iterator[_T]:
        order = super().__iter__()
        self.set_epoch(self.epoch + 1)
        return order


def loader(
    dataset: Dataset[_T],
    trial: TrialContext,
    batch_size: int,
    shuffle: bool = True,
    **loader_arguments: Any,
) -> DataLoader[_T]:
    """Returns a `DataLoader` over the part of a dataset that belongs to this rank.

    If the number of samples is not a multiple of the number of ranks, a few samples are used
    twice, so that all ranks make the same number of steps. A metric computed over such a loader
    counts them twice.

    Args:
        dataset: A dataset with a length, the same on every rank.
        trial: The trial. Its seed determines the order.
        batch_size: The batch size of one rank. A step uses `world_size` times as many samples.
        shuffle: Whether to draw a new order, and new parts, in each epoch.
        **loader_arguments: For `torch.utils.data.DataLoader`.

    Raises:
        TypeError: If the dataset has no length.
    """
    if not isinstance(dataset, Sized):
        raise TypeError("ddp.loader: the dataset has no length. Split a stream by trial.rank.")
    sampler: AdvancingSampler[Any] = AdvancingSampler(
        dataset, trial.world_size, trial.rank, shuffle, trial.seed
    )
    # Workers of a loader are seeded from it; without one all ranks would augment alike.
    loader_arguments.setdefault("generator", torch.Generator().manual_seed(trial.rank_seed))
    return DataLoader(dataset, batch_size, sampler=sampler, **loader_arguments)
