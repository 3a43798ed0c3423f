"""A training function without a module: defined in a notebook, in `__main__`, or in a function.

It is pickled by value into a file in the study's own folder, next to a module that loads it, so
that the rest of the tuner finds it like any other function, as `module:function`. Loading a pickle
runs code: `load` accepts a file only if this user owns it, no other user may write it, and it has
the digest in the module. A later call removes it when no study uses it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pickle
import secrets
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import ConfigError, LaunchError

MODULE_PREFIX = "tuner_function_"
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_SUFFIX = ".pkl"
_N_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFunction:
    """A function on its way to the trials."""

    #: Name of the module next to the pickle; the same for the same text.
    module: str
    #: Its name in the module.
    name: str
    data: bytes
    #: Its source if there is one, for the record.
    source: str

    @property
    def target(self) -> str:
        """As `trial.function` names it."""
        return f"{self.module}:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A function that trials can load now."""

    #: Folder of its module.
    folder: Path
    #: The files stay as long as a process has it open.
    fd: int


def pickled(function: Callable[..., object], source: str) -> StoredFunction:
    """Pickles a function by value.

    Raises:
        Exception: Any error of an object that the function uses and that cannot be pickled.
    """
    import cloudpickle  # Only who calls `tuner.tune` needs it.

    name = getattr(function, "__name__", type(function).__name__)
    digest = hashlib.sha256(f"{name}\n{source}".encode()).hexdigest()
    return StoredFunction(
        module=MODULE_PREFIX + digest[:_N_DIGITS],
        name=name if name.isidentifier() else "function",
        data=cloudpickle.dumps(function),
        source=source,
    )


def store(function: StoredFunction, folder: Path) -> Stored:
    """Writes the pickle and its module, and removes those that no study uses any more.

    Args:
        function: The function. Its source stays in the folder, named like its module.
        folder: Folder of the study, created if missing.

    Raises:
        ConfigError: If the folder can't be written.
    """
    own = folder / secrets.token_hex(_N_DIGITS // 2)
    try:
        own.mkdir(mode=0o700, parents=True)
        fd = _write_held(own / f"{function.module}{_SUFFIX}", function.data)
        digest = hashlib.sha256(function.data).hexdigest()
        module = _module_text(function, digest)
        (own / f"{function.module}.py").write_text(module, encoding="utf-8")
        (folder / f"{function.module}.txt").write_text(function.source, encoding="utf-8")
        _remove_unused(folder)
    except OSError as error:
        problem = f"The function is stored in {folder}, which can't be written: {error.strerror}."
        raise ConfigError(problem) from error
    return Stored(folder=own, fd=fd)


def load(module_file: str, digest: str) -> Any:
    """Loads the function next to a module that `store` has written.

    Raises:
        LaunchError: If the file is not the one that was written.
    """
    path = Path(module_file).with_suffix(_SUFFIX)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise LaunchError(f"The function in {path} can't be read: {error.strerror}.") from error
    with os.fdopen(fd, "rb") as file:
        about = os.fstat(fd)
        if about.st_uid != os.geteuid() or about.st_mode & _OTHERS_MAY_WRITE:
            problem = "belongs to another user, or others may write it"
            raise LaunchError(f"{path} {problem}. Call tuner.tune again.")
        data = file.read()
    if hashlib.sha256(data).hexdigest() != digest:
        raise LaunchError(f"{path} is not what tuner.tune has written. Call it again.")
    return pickle.loads(data)


def _write_held(path: Path, data: bytes) -> int:
    """Writes a file that is locked before it gets its name; the descriptor holds the lock."""
    partial = path.with_suffix(".partial")
    fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(data)
        os.rename(partial, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _remove_unused(folder: Path) -> None:
    for path in folder.glob(f"*/{MODULE_PREFIX}*{_SUFFIX}"):
        # Another call may remove it as well; what is locked is in use.
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.parent)


def _module_text(function: StoredFunction, digest: str) -> str:
    """The module's text; it contains the function's source, from which imports are preloaded."""
    commented = "".join(f"# {line}\n" for line in function.source.splitlines())
    return (
        f'"""Loads the function {function.name!r} that tuner.tune was given."""\n\n'
        f"from tuner.launch.stored_function import load\n\n{commented}\n"
        f"{function.name} = load(__file__, {digest!r})\n"
    )
