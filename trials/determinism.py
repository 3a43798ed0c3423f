"""Random seeds of a trial's ranks, and settings for deterministic results."""

from __future__ import annotations

import hashlib
import os
import random
import sys

#: Eight workspaces of 4 MiB: one of the two settings with which cuBLAS is deterministic.
#: https://docs.nvidia.com/cuda/cublas/#results-reproducibility
CUBLAS_WORKSPACE = ":4096:8"


def seed_of_rank(seed: int, rank: int) -> int:
    """A seed of a rank's own, below 2**31; rank 0 keeps the trial's."""
    if rank == 0:
        return seed
    digest = hashlib.sha256(f"{seed}/rank/{rank}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def seed_generators(seed: int) -> None:
    """Seeds `random`, and NumPy and torch (CPU and GPUs) where they are loaded.

    Args:
        seed: Below 2**32, which is NumPy's limit.
    """
    random.seed(seed)
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed(seed)
    if torch := sys.modules.get("torch"):
        # A GPU that is not in use yet is seeded when it is.
        torch.manual_seed(seed)


def make_deterministic() -> None:
    """Makes torch use only deterministic algorithms, also on GPUs; an operation without one fails.

    Call it before the first use of a GPU, see https://pytorch.org/docs/stable/notes/randomness.html
    """
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", CUBLAS_WORKSPACE)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
