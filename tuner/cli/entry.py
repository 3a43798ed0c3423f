"""Where the programs `tuner`, `python -m tuner.run` and `python -m tuner.best` begin.

Imports the standard library only: the command line takes half a second to import, and a Ctrl-C in
that time is answered like any other.
"""

from __future__ import annotations

import sys
from types import ModuleType

from tuner.errors import EXIT_INTERRUPTED

BEFORE_A_TRIAL = "Interrupted before a trial was started. Nothing is lost."


def tuner() -> None:
    """Begins `tuner`."""
    _command_line().main()


def run() -> None:
    """Begins `python -m tuner.run`."""
    _command_line().run_main()


def best() -> None:
    """Begins `python -m tuner.best`."""
    _command_line().best_main()


def end_as_interrupted(message: str) -> int:
    """Prints the message, and gives the exit code after Ctrl-C."""
    # Where it came in the middle of an `exec` of text (an import that makes a dataclass), Python
    # remembers that, and ends itself by the signal whatever the exit code is, until the next `exec`
    # (`run_eval_code_obj` in CPython's Python/pythonrun.c).
    exec("")
    print(message, file=sys.stderr)
    return EXIT_INTERRUPTED


def _command_line() -> ModuleType:
    try:
        from tuner.cli import main
    except KeyboardInterrupt:
        sys.exit(end_as_interrupted(BEFORE_A_TRIAL))
    return main
