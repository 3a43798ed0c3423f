"""The rendezvous of a program's ranks: torch's process group, in place of the program's own.

Such a program is started by mpirun, or starts its ranks with `mp.spawn`. Under the tuner its ranks
already run. They use a port of the tuner, so that several trials can run at once.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from optuna_integration import TorchDistributedTrial
from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import Store

from tuner.frameworks.optuna_programs.interception import Reached, replaced
from tuner.trials import ddp
from tuner.trials.rendezvous import store_of_ranks, use_loopback_interface

_DEFAULT = 2
_ADDRESS = ("MASTER_ADDR", "MASTER_PORT")
_BY_TUNER = ("init_method", "store", "rank", "world_size")


class Meeting:
    """Replaces the program's rendezvous.

    Args:
        rank: Rank of this process.
        n_ranks: Number of ranks of the trial.
        is_alone: Whether no trial runs: this process is then the only rank.
    """

    def __init__(self, rank: int, n_ranks: int, *, is_alone: bool = False) -> None:
        #: Ranks that the program starts with `mp.spawn`; None if it does not.
        self.n_spawned: int | None = None
        self._rank = rank
        self._n_ranks = n_ranks
        self._is_alone = is_alone
        #: The tuner's rendezvous address; the program sets one of its own.
        self._address = {key: os.environ[key] for key in _ADDRESS if key in os.environ}
        self._store: Store | None = None
        self._has_shared_a_trial = False

    @property
    def devices(self) -> dict[str, int]:
        """Devices for the ranks of a trial, such as `{gpus: 2}`."""
        n_gpus = torch.cuda.device_count()
        # mpirun and torchrun have the number on their command line, which the tuner does not see.
        n_ranks = self.n_spawned or min(_DEFAULT, n_gpus or _DEFAULT)
        return {"gpus" if n_gpus else "cpus": n_ranks}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Replaces functions of torch and Optuna inside of the block."""
        os.environ |= _variables(self._rank, self._n_ranks)
        joining = self._init_process_group
        with replaced(
            [
                (dist, "init_process_group", joining),
                (distributed_c10d, "init_process_group", joining),
                (torch.multiprocessing, "spawn", self._spawn),
                (TorchDistributedTrial, "__init__", self._share()),
            ]
        ):
            yield

    def leave(self) -> None:
        """Waits for the other ranks, and leaves the group. Takes a few seconds at most."""
        if self._store is not None:
            ddp.leave(self._store, self._n_ranks)

    @property
    def _init_process_group(self) -> Callable[..., None]:
        original = dist.init_process_group
        signature = inspect.signature(original)

        def init_process_group(*arguments: Any, **options: Any) -> None:
            found = signature.bind(*arguments, **options).arguments
            given: dict[str, Any] = {k: v for k, v in found.items() if k not in _BY_TUNER}
            os.environ |= self._address
            use_loopback_interface()
            timeout: timedelta = found.get("timeout") or distributed_c10d.default_pg_timeout
            self._store = store_of_ranks(self._rank, self._n_ranks, timeout)
            original(**given, store=self._store, rank=self._rank, world_size=self._n_ranks)

        return init_process_group

    def _spawn(
        self, fn: Callable[..., None], args: tuple[Any, ...] = (), nprocs: int = 1, **_: Any
    ) -> None:
        """Calls the function as this rank, which has been started."""
        self.n_spawned = nprocs
        if nprocs != self._n_ranks and not self._is_alone:
            (key,) = self.devices
            raise RuntimeError(
                f"The program starts {nprocs} rank{'s' if nprocs > 1 else ''} (mp.spawn), but this "
                f"trial has {self._n_ranks}. Start the study with --set trial.resources.{key}="
                f"{nprocs}, or give the program its arguments for {self._n_ranks}."
            )
        fn(self._rank, *args)

    def _share(self) -> Callable[..., None]:
        original = TorchDistributedTrial.__init__

        def __init__(made: object, *arguments: Any, **options: Any) -> None:
            if self._has_shared_a_trial:
                raise Reached
            self._has_shared_a_trial = True
            original(made, *arguments, **options)

        return __init__


def _variables(rank: int, n_ranks: int) -> Mapping[str, str]:
    """Variables that torchrun and Open MPI's mpirun set for a rank. All ranks share a machine."""
    values = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": n_ranks, "LOCAL_WORLD_SIZE": n_ranks}
    of_mpi = {"RANK": rank, "LOCAL_RANK": rank, "SIZE": n_ranks, "LOCAL_SIZE": n_ranks}
    values |= {f"OMPI_COMM_WORLD_{key}": value for key, value in of_mpi.items()}
    return {key: str(value) for key, value in values.items()}
