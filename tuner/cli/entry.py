"""Where the programs `tuner`, `python -m tuner.run` and `python -m tuner.best` begin.

Imports the standard library only: the command line takes half a second to import, and a Ctrl-C in
that time is answered like any other.
"""

from __future__ import annotations

import sys
from types import ModuleType

from tuner.host.interruption import BEFORE_A_TRIAL, end_as_interrupted


def tuner() -> None:
    """Begins `tuner`."""
    _command_line().main()


def run() -> None:
    """Begins `python -m tuner.run`."""
    _command_line().run_main()


def best() -> None:
    """Begins `python -m tuner.best`."""
    _command_line().best_main()


def _command_line() -> ModuleType:
    try:
        from tuner.cli import main
    except KeyboardInterrupt:
        sys.exit(end_as_interrupted(BEFORE_A_TRIAL))
    return main
