"""Imported once by the fork server, so that every trial starts with its modules in memory.

Torch takes seconds to import; a process forked from one that has it starts in milliseconds. This
module is imported for what it does. CUDA must not be initialised here: a fork cannot use it.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path

ENV_MODULES = "TUNER_PRELOAD_MODULES"
ENV_SYS_PATH = "TUNER_PRELOAD_SYS_PATH"
ENV_LOG = "TUNER_PRELOAD_LOG"

#: Where every forked process looks for modules; empty outside of a fork server.
import_path: list[str] = []


def _preload() -> None:
    # Away from the terminal's process group: Ctrl-C is the dispatcher's to handle.
    os.setsid()
    if log := os.environ.pop(ENV_LOG, ""):
        _redirect_output(log)
    import_path[:] = os.environ.pop(ENV_SYS_PATH, os.pathsep.join(sys.path)).split(os.pathsep)
    sys.path[:] = import_path
    names = [name for name in os.environ.pop(ENV_MODULES, "").split(",") if name]
    for name in names:
        _import(name)
    if "torch" in sys.modules and any(_needs_dynamo(name) for name in names if name != "torch"):
        # Torch imports it with the first optimizer or DDP model, 1.3 s in each trial.
        _import("torch._dynamo")
    if "numpy" in sys.modules:
        # NumPy imports it on first use, which would be in each trial, 12 ms a time.
        _import("numpy.random")
    # Objects of before the fork are never collected, so their pages stay shared.
    gc.collect()
    gc.freeze()


def _needs_dynamo(name: str) -> bool:
    """Whether a module's text names torch's optimizers or DDP; a wrong answer costs time only."""
    path = getattr(sys.modules.get(name), "__file__", None) or ""
    try:
        text = Path(path).read_bytes() if path.endswith(".py") else b""
        return any(word in text for word in (b"optim", b"ddp.wrap", b"DistributedDataParallel"))
    except OSError:
        return False


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except (Exception, SystemExit) as error:  # the check of the program shows it to the user
        print(f"Could not import {name} ahead of the trials: {error!r}", file=sys.stderr)


def _redirect_output(path: str) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


if ENV_MODULES in os.environ:
    _preload()
