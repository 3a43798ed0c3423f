"""The edge of the command line: errors become messages and exit codes here, and nowhere else."""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
from typing import NoReturn

import optuna
import typer

from tuner.errors import EXIT_BAD_INPUT, EXIT_STUDY_FAILED, TunerError
from tuner.host.interruption import BEFORE_A_TRIAL, end_as_interrupted

#: Errors of writes to a full disk, or a terminal that is gone.
_OF_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
#: Imported with the first look at a database.
_DAMAGE = "tuner.store.connection.damage"
TRIALS_ARE_SAFE = (
    "Every trial was stopped and what had finished is safe; the same command continues. With "
    "--debug it shows where; please report that."
)


class Edge:
    """Context in which every command runs.

    Args:
        debug: Show tracebacks too.
        interrupted: The message after Ctrl-C.
        accident: The message after an unexpected error: what remains, and what to do.
    """

    def __init__(
        self,
        debug: bool,
        *,
        interrupted: str = BEFORE_A_TRIAL,
        accident: str = TRIALS_ARE_SAFE,
    ) -> None:
        self._debug = debug
        self._interrupted = interrupted
        self._accident = accident

    def __enter__(self) -> None:
        # Its own messages (a study was created, a trial ended) would mix with ours.
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        if damage := sys.modules.get(_DAMAGE):
            damage.forget_looks()

    def __exit__(self, kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, TunerError):
            if self._debug:
                traceback.print_exception(error)
            _leave(str(error), error.exit_code)
        if isinstance(error, BrokenPipeError):
            # The reader of our output is gone (`| head`).
            _write_to_nowhere()
            raise typer.Exit(0)
        if isinstance(error, OSError) and error.filename is None and error.errno in _OF_OUTPUT:
            # Its own output may be what could not be written; then it cannot be now, either.
            _flush("\n")
        if error is None or isinstance(error, typer.Exit):
            _flush()
        if isinstance(error, KeyboardInterrupt):
            raise typer.Exit(end_as_interrupted(self._interrupted))
        if isinstance(error, Exception) and not isinstance(error, typer.Exit):
            if damage := _damage_of_a_database():
                _leave(damage, EXIT_BAD_INPUT)
            logging.getLogger("tuner").error("accident", exc_info=error)
            if self._debug:
                traceback.print_exception(error)
            _leave(
                f"The tuner had an accident: {type(error).__name__}: {error}\n{self._accident}",
                EXIT_STUDY_FAILED,
            )


def _flush(text: str = "") -> None:
    """Flushes output, so that a full disk is reported like any other error."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        _write_to_nowhere()
    except OSError as error:
        _write_to_nowhere()
        _leave(f"The output cannot be written: {error.strerror}.", EXIT_STUDY_FAILED)


def _write_to_nowhere() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _damage_of_a_database() -> str:
    """Why something may have failed that is no mistake of ours; empty for no reason."""
    if _DAMAGE not in sys.modules:
        return ""
    from tuner.store.connection.damage import damage_told

    return damage_told()


def _leave(message: str, code: int) -> NoReturn:
    print(message, file=sys.stderr)
    raise typer.Exit(code)
