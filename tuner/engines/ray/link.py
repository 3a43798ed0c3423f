"""Asks Ray through a process of its own, and waits for answers for a bounded time."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
import weakref
from typing import IO, Any

from tuner.engines.ray.script import PROGRAM
from tuner.errors import EngineError

_LIMIT_S = 30.0
_LAST_LINES = 5
_NO_RAY = (
    "engine: ray needs the package ray, in the version of the cluster. Install it: "
    "pip install 'gpu-tuner[ray]'"
)


class RayLink:
    """The connection to a cluster, made at the first request.

    Args:
        address: `engine.ray.address`.
        python: Runs the program that imports Ray.
    """

    def __init__(self, address: str, python: str = sys.executable) -> None:
        self._address = address
        self._python = python
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None

    def ask(self, name: str, *arguments: object, limit_s: float = _LIMIT_S) -> Any:
        """The answer to a question of `program.py`.

        Raises:
            EngineError: If Ray is missing, no cluster answers in time, or it refuses.
        """
        if self._process is None or self._process.poll() is not None:
            self._open()
        return self._ask(name, *arguments, limit_s=limit_s)

    def _open(self) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - open while the process runs
        self._process = subprocess.Popen(
            [self._python, "-P", str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
        )
        weakref.finalize(self, _close, self._process, self._said)
        self._ask("connect", self._address, limit_s=_LIMIT_S)

    def _ask(self, name: str, *arguments: object, limit_s: float) -> Any:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps([name, *arguments]).encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise self._lost() from error
        found: dict[str, Any] = json.loads(self._read_line(process, limit_s))
        if "error" in found:
            raise self._refused(found["error"], found["text"])
        return found["answer"]

    def _read_line(self, process: subprocess.Popen[bytes], limit_s: float) -> bytes:
        assert process.stdout is not None
        file = process.stdout.fileno()
        give_up_at_s = time.monotonic() + limit_s
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([file], [], [], max(0.0, give_up_at_s - time.monotonic()))[0]:
                _kill(process)
                raise EngineError(
                    f"The Ray cluster at {self._address} gave no answer for {limit_s:g} s. "
                    "Look: ray status"
                )
            part = os.read(file, 2**16)
            if not part:
                raise self._lost()
            line += part
        return line

    def _lost(self) -> EngineError:
        """Ray ends a process that has lost its cluster."""
        assert self._process is not None
        assert self._said is not None
        _kill(self._process)
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").split("\n")
        said = "\n".join([line for line in lines if line.strip()][-_LAST_LINES:])
        return EngineError(f"The Ray cluster at {self._address} is lost: {said or 'no word why'}")

    def _refused(self, kind: str, text: str) -> EngineError:
        if kind in ("ModuleNotFoundError", "ImportError"):
            return EngineError(f"{_NO_RAY} ({text})")
        if kind in ("ConnectionError", "ConnectionRefusedError", "TimeoutError", "gaierror"):
            where = f"at {self._address}" if self._address != "auto" else "on this machine"
            why = text.rstrip(".")
            return EngineError(
                f"No Ray cluster answers {where}: {why}. Start one (ray start --head), "
                "use tuner submit on one of its nodes, or name its head: "
                "ray: {address: 'head.example:6379'}"
            )
        return EngineError(f"The Ray cluster at {self._address} refuses: {text}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _close(process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
    """The program ends when its stdin is closed; if not, it is ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.close()
        process.wait(2)
    except (OSError, subprocess.TimeoutExpired):
        _kill(process)
    process.stdout.close()
    said.close()
