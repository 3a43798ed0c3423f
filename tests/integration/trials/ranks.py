"""The ranks of a trial: processes forked from one that has torch in memory, as the tuner's are."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from tests.unit.trials.recording_link import ATTEMPT, RecordingLink
from tuner.domain.messages import Assign, Json
from tuner.trials.context import TrialContext

_TIMEOUT_S = 110.0
_PRELOADED = ("torch", "torch.distributed.fsdp", "torch._dynamo", "tuner.trials.ddp")

Program = Callable[[TrialContext], Any]


@dataclass(frozen=True, kw_only=True)
class Rank:
    """How one rank ended: what its program returned, or its error in words."""

    value: Any = None
    error: str | None = None


def values_of(ranks: list[Rank]) -> list[Any]:
    """What each returned; no rank may have failed."""
    assert [rank.error for rank in ranks] == [None] * len(ranks)
    return [rank.value for rank in ranks]


def run_ranks(
    program: Program,
    folder: Path,
    *,
    world_size: int = 2,
    devices: tuple[str, ...] = ("cpu:0", "cpu:1"),
    params: Mapping[str, Json] | None = None,
) -> list[Rank]:
    """Calls a function of a module on every rank, and waits for all."""
    assign = Assign(
        attempt_id=ATTEMPT,
        trial_number=7,
        attempt_number=2,
        params=params or {},
        seed=11,
        checkpoint_dir=str(folder / "checkpoints"),
        objectives=("accuracy",),
        devices=devices,
    )
    context = multiprocessing.get_context("forkserver")
    _end_server_of_others()
    context.set_forkserver_preload(list(_PRELOADED))
    port = free_port()
    pipes = []
    for rank in range(world_size):
        ours, theirs = context.Pipe(duplex=False)
        arguments = (program, assign, environment_of_rank(rank, world_size, port), theirs)
        context.Process(target=_run, args=arguments, daemon=True).start()
        theirs.close()
        pipes.append(ours)
    return [_result(pipe) for pipe in pipes]


def _end_server_of_others() -> None:
    """Ends a fork server that another test has left in this process: it has other modules."""
    server: Any = forkserver._forkserver
    if server._forkserver_pid is not None and server._preload_modules != list(_PRELOADED):
        server._stop()


def environment_of_rank(rank: int, world_size: int, port: int) -> dict[str, str]:
    """What torchrun sets, and the tuner."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _run(
    program: Program, assign: Assign, environment: Mapping[str, str], pipe: Connection
) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    torch.manual_seed(assign.seed)
    try:
        rank = Rank(value=program(TrialContext(assign, RecordingLink())))
    except BaseException as error:
        rank = Rank(error=f"{type(error).__name__}: {error}")
    # Not `send`, which shares the memory of tensors: this process is gone soon.
    pipe.send_bytes(pickle.dumps(rank))
    # As a worker ends: without the interpreter's teardown.
    os._exit(0)


def _result(pipe: Connection) -> Rank:
    assert pipe.poll(_TIMEOUT_S), "a rank is stuck"
    result = pickle.loads(pipe.recv_bytes())
    assert isinstance(result, Rank)
    return result
