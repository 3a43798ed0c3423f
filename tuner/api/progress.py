"""Shows progress: live in a terminal, in place in a notebook, else as lines."""

from __future__ import annotations

import os
import sys
from enum import Enum
from typing import Protocol

from tuner.api.messages import Finished, Line, Message


class Place(Enum):
    """Kind of output of the calling code."""

    NOTEBOOK = "notebook"
    TERMINAL = "terminal"
    LINES = "lines"


class Show(Protocol):
    """Receives every message of the dispatching process, from one thread."""

    def take(self, message: Message) -> None: ...


class Nothing:
    """Shows nothing."""

    def take(self, message: Message) -> None: ...


class Lines:
    """Prints lines."""

    def take(self, message: Message) -> None:
        if isinstance(message, Line):
            print(message.text, flush=True)
        if isinstance(message, Finished):
            print(message.summary, flush=True)


class AfterTheLivePicture:
    """For a terminal, in which the dispatching process draws: output after its live view."""

    def take(self, message: Message) -> None:
        if isinstance(message, Finished):
            print(message.summary, flush=True)


def find_place() -> Place:
    """The kind of output of the calling code."""
    if _is_notebook():
        return Place.NOTEBOOK
    return Place.TERMINAL if _is_terminal() else Place.LINES


def _is_notebook() -> bool:
    """Whether a Jupyter kernel runs this code; IPython in a terminal is a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def _is_terminal() -> bool:
    """Whether standard output is a terminal that a child would write to as well."""
    if os.environ.get("TERM") == "dumb":
        return False
    try:
        return sys.stdout.fileno() == 1 and os.isatty(1)
    except (AttributeError, OSError, ValueError):
        return False
