"""What is said after Ctrl-C, and the exit code. Imports the standard library only."""

from __future__ import annotations

import sys

from tuner.errors import EXIT_INTERRUPTED

BEFORE_A_TRIAL = "Interrupted before a trial was started. Nothing is lost."


def end_as_interrupted(message: str) -> int:
    """Prints the message, and gives the exit code after Ctrl-C."""
    # Where it came in the middle of an `exec` of text (an import that makes a dataclass), Python
    # remembers that, and ends itself by the signal whatever the exit code is, until the next `exec`
    # (`run_eval_code_obj` in CPython's Python/pythonrun.c).
    exec("")
    print(message, file=sys.stderr)
    return EXIT_INTERRUPTED
