"""A wide trial that does nothing but meet: says when its first all-reduce was done.

Run by the tuner as a function, and by torchrun as a script.
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist


def meet() -> None:
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        assert int(total) == dist.get_world_size()
        with Path(os.environ["FIRST_ALL_REDUCE_LOG"]).open("a") as log:
            log.write(f"{time.time_ns()}\n")
    dist.destroy_process_group()


def train(_trial: object) -> float:
    meet()
    return 0.0


if __name__ == "__main__":
    meet()
