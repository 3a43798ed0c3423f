"""Runs the commands of an engine: for a bounded time, and with its own words in an error."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence

from tuner.errors import EngineError

_LIMIT_S = 60.0


def run_command(
    words: Sequence[str],
    *,
    refused: str,
    given: str | None = None,
    environ: Mapping[str, str] | None = None,
    without: Callable[[str], bool] = lambda name: False,
    limit_s: float = _LIMIT_S,
    advice: Callable[[int], str] = lambda code: "",
) -> str:
    """Runs a command and returns its output.

    Args:
        words: The command; no shell reads it.
        refused: What failed, for the message.
        given: Its standard input.
        environ: Variables in addition to those of this process.
        without: Selects names of variables that it does not get.
        limit_s: Timeout in seconds.
        advice: Returns what to do for an exit code; empty if nothing is known.

    Raises:
        EngineError: If it is missing, fails or takes too long.
    """
    try:
        done = subprocess.run(
            words,
            input=given if given is not None else "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            env=_environment(environ or {}, without),
            check=False,
        )
    except FileNotFoundError as error:
        raise EngineError(f"{refused}: there is no {words[0]} on the PATH.") from error
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"{refused}: {words[0]} gave no answer for {limit_s:g} s.") from error
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        what_to_do = advice(done.returncode)
        raise EngineError(f"{refused}: {said}" + (f"\n{what_to_do}" if what_to_do else ""))
    return done.stdout


def _environment(added: Mapping[str, str], without: Callable[[str], bool]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not without(name)}
    return {**kept, **added}


def require_program(name: str, why: str) -> None:
    """Checks that a program is on the PATH.

    Raises:
        EngineError: If it is not.
    """
    if shutil.which(name) is None:
        raise EngineError(f"There is no {name} on the PATH of this machine. {why}")
