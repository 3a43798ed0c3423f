"""Imported once by the fork server, so that every trial starts with its modules in memory.

Torch takes seconds to import; a process forked from one that has it starts in milliseconds, and
from one without it in half of that. This module is imported for its side effects. CUDA must not be
initialised here: a fork cannot use it.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import multiprocessing
import os
import re
import sys
import sysconfig
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from tuner.launch.import_times import ImportTimes, long_import
from tuner.launch.local_host import announced_stop, leftover_workers, lifeline, orphans

_P = ParamSpec("_P")
_T = TypeVar("_T")

ENV_MODULES = "TUNER_PRELOAD_MODULES"
ENV_SYS_PATH = "TUNER_PRELOAD_SYS_PATH"
ENV_LOG = "TUNER_PRELOAD_LOG"
ENV_LIFELINE = "TUNER_PRELOAD_LIFELINE"
ENV_DISPATCHER = "TUNER_PRELOAD_DISPATCHER"

#: prctl(2) option, on Linux only.
_PR_SET_CHILD_SUBREAPER = 36
# What is in the text of the user's modules; a wrong answer costs time, nothing else. `trial.save`,
# `trial.device` and the like import torch as well, and so do libraries on top of it.
_NEEDS_TORCH = re.compile(
    rb"torch|lightning|transformers|fastai|keras|ultralytics|timm"
    rb"|\.(save|load|device|devices|autocast)\b|checkpoint"
)
# Torch imports it with the first optimizer or DDP model, 1.3 s in each trial.
_NEEDS_DYNAMO = re.compile(rb"optim|ddp\.wrap|DistributedDataParallel")
#: The driver's library in a list of mapped files.
_CUDA_LIBRARY = re.compile(r"\s(/\S*/libcuda\.so\S*)$", re.MULTILINE)
#: multiprocessing imports it in each forked process to find its target: 1 ms per trial.
_OF_A_FORK = "multiprocessing.popen_forkserver"
_INSTALLED = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
#: Folders of libraries elsewhere: in the home (`pip install --user`), or below an environment that
#: this one is built on.
_LIBRARIES = frozenset({"site-packages", "dist-packages"})
#: Named to a server, and not of the user.
_NOT_THEIRS = frozenset({"tuner", "torch"})

#: Module search path of every forked process; empty outside of a fork server.
import_path: list[str] = []
#: Notes on the user's modules.
remarks: list[str] = []
#: Start method that the user's modules set; None for Python's default.
start_method: str | None = None
#: Exit handlers of modules; each forked process runs them at its end.
exit_handlers: list[Callable[[], object]] = []
#: Whether importing the user's modules has initialised CUDA, through torch or any other library.
has_initialised_cuda = False
# Torch's cost 40 ms at each end and do nothing there; the others are done by the worker itself.
_WITHOUT_EXIT_HANDLERS = frozenset({"torch", "tuner", *sys.stdlib_module_names})


def _preload() -> None:
    global has_initialised_cuda, start_method
    # Away from the terminal's process group: Ctrl-C is the dispatcher's to handle.
    os.setsid()
    # Imports may hang. Later this process ends when the last worker has, and ends what they left.
    path = os.environ.pop(ENV_LIFELINE, "")
    held = lifeline.hold(path) if path else None
    if path:
        announced_stop.outlive_sigterm(Path(path).parent)
    if file := os.environ.pop(ENV_DISPATCHER, ""):
        leftover_workers.hold(Path(file))
    _adopt_orphans()
    if log := os.environ.pop(ENV_LOG, ""):
        _redirect_output(log)
    import_path[:] = os.environ.pop(ENV_SYS_PATH, os.pathsep.join(sys.path)).split(os.pathsep)
    sys.path[:] = import_path
    names = [name for name in os.environ.pop(ENV_MODULES, "").split(",") if name]
    with _exit_handlers_kept():
        _import_all(names)
    has_initialised_cuda = is_cuda_initialised()
    start_method = multiprocessing.get_start_method(allow_none=True)
    _import(_OF_A_FORK)
    if "numpy" in sys.modules:
        # NumPy imports it on first use, which would be in each trial, 12 ms a time.
        _import("numpy.random")
    # Objects of before the fork are never collected, so their pages stay shared.
    gc.collect()
    gc.freeze()
    if held is not None:
        os.close(held)


def _adopt_orphans() -> None:
    """Makes this process adopt the orphans of workers (prctl(2)), to find and end them."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        atexit.register(orphans.end_children)
    # Of multiprocessing, of children that it has not started.
    warnings.filterwarnings("ignore", message="forkserver: waitpid returned unexpected pid")


@contextmanager
def _exit_handlers_kept() -> Iterator[None]:
    """Records exit handlers of the user's modules and their libraries, such as the end of a run."""
    original = atexit.register

    def register(
        handler: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> Callable[_P, _T]:
        module = getattr(handler, "__module__", None) or ""
        if module.partition(".")[0] not in _WITHOUT_EXIT_HANDLERS:
            exit_handlers.append(partial(handler, *args, **kwargs))
        return original(handler, *args, **kwargs)

    atexit.register = register  # type: ignore[assignment]
    try:
        yield
    finally:
        atexit.register = original


def _import_all(names: Sequence[str]) -> None:
    before = set(sys.modules)
    with ImportTimes() as times:
        for name in names:
            start_s = time.monotonic()
            _import(name)
            if name.partition(".")[0] not in _NOT_THEIRS:
                own_s = times.own_s(name, time.monotonic() - start_s)
                remarks.extend(filter(None, [long_import(name, own_s)]))
    theirs = [name for name in set(sys.modules) - before if _is_users(name, names)]
    text = b"".join(map(_text_of, theirs))
    if "torch" not in sys.modules and _NEEDS_TORCH.search(text):
        _import("torch")
    if "torch" in sys.modules and _NEEDS_DYNAMO.search(text):
        _import("torch._dynamo")


def _is_users(name: str, named: Sequence[str]) -> bool:
    """Whether a module is the user's own: named in the study file, or not an installed one."""
    path = getattr(sys.modules[name], "__file__", None)
    if path is None or name.partition(".")[0] in _NOT_THEIRS:
        return False
    return name in named or not _is_installed(Path(path))


def _is_installed(path: Path) -> bool:
    in_known_folder = any(path.is_relative_to(folder) for folder in _INSTALLED)
    return in_known_folder or not _LIBRARIES.isdisjoint(path.parts)


def _text_of(name: str) -> bytes:
    path = sys.modules[name].__file__ or ""
    try:
        return Path(path).read_bytes() if path.endswith(".py") else b""
    except OSError:
        return b""


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except (Exception, SystemExit) as error:  # the check of the program shows it to the user
        print(f"Could not import {name} ahead of the trials: {error!r}", file=sys.stderr)


def is_cuda_initialised() -> bool:
    """Whether this process has initialised CUDA: its forks then cannot use it.

    The driver's library is asked, as torch knows its own initialisation only, not that of CuPy or
    Numba.
    """
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return False
    if (mapped := _CUDA_LIBRARY.search(maps)) is None:
        return False
    n_devices = ctypes.c_int()
    code: int = ctypes.CDLL(mapped[1]).cuDeviceGetCount(ctypes.byref(n_devices))
    return code == 0


def _redirect_output(path: str) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


if ENV_MODULES in os.environ:
    _preload()
