"""Every error that the tuner raises on purpose.

    TunerError
    ├── ConfigError        the study file or the command line is wrong        exit code 2
    ├── DeviceError        the devices asked for are not there or not free    exit code 2
    ├── LaunchError        a worker could not be started                      exit code 2
    ├── EngineError        Slurm, Kubernetes, Ray or ssh refused or is absent exit code 2
    ├── StoreError         the database could not be used                     exit code 1 or 2
    │   └── StudyMismatch  the stored study differs from the file             exit code 2
    ├── StudyFailed        a study that Python code started has failed        exit code 1
    ├── ChannelClosed      the other end of a channel is gone                 (inside a worker)
    ├── MessageTooLarge    a message is above the channel's limit             (inside a worker)
    ├── RanksDisagree      the ranks of a trial are at different steps        (inside a worker)
    └── InvalidTransition  an attempt was moved to a state it cannot reach    (a bug in the tuner)

A message says what is wrong, the value, what is allowed and what to do, so that the
command line can print it as it is, with no traceback.
"""

from __future__ import annotations

EXIT_BUDGET_REACHED = 0
EXIT_STUDY_FAILED = 1
EXIT_BAD_INPUT = 2
#: An engine took the node back (EX_TEMPFAIL of sysexits.h): start the same command again.
EXIT_COME_BACK = 75
EXIT_INTERRUPTED = 130

_LONGEST_LINE = 2000
_SHOWN = 500


class TunerError(Exception):
    """The tuner could not continue."""

    exit_code = EXIT_BAD_INPUT

    def __init__(self, message: str | None = None) -> None:
        said = message or type(self).__doc__ or ""
        super().__init__("\n".join(map(_without_its_middle, said.split("\n"))))


class ConfigError(TunerError):
    """The study file is wrong.

    Args:
        problem: What is wrong and what to do, a full sentence without the place.
        file: The file that holds the mistake, as the user named it.
        key: Dotted path of the key, such as ``trial.resources.gpus``.
    """

    def __init__(self, problem: str, *, file: str | None = None, key: str | None = None) -> None:
        self.problem = problem
        self.file = file
        self.key = key
        place = f"{file}: " if file else ""
        super().__init__(f"{place}{key} {problem}" if key else f"{place}{problem}")


def _without_its_middle(line: str) -> str:
    """A message shows the value that is wrong, which may be a page of text."""
    return line if len(line) <= _LONGEST_LINE else f"{line[:_SHOWN]} [...] {line[-_SHOWN:]}"


class DeviceError(TunerError):
    """The devices asked for are not there, or none of them is free."""


class LaunchError(TunerError):
    """A worker could not be started."""


class EngineError(TunerError):
    """An engine is not there, or refused what was asked of it."""


class StoreError(TunerError):
    """The database could not be used.

    Args:
        message: What is wrong and what to do. Never holds a password.
        exit_code: 2 where the user's input is at fault, 1 where the database went away.
    """

    def __init__(self, message: str | None = None, *, exit_code: int = EXIT_BAD_INPUT) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class StudyMismatch(StoreError):
    """The study in the database has another search space or other objectives."""


class StudyFailed(TunerError):
    """The study ended without a result, or the process that ran it has died."""

    exit_code = EXIT_STUDY_FAILED


class ChannelClosed(TunerError):
    """The other end of the channel is gone."""


class MessageTooLarge(TunerError, ValueError):
    """A message is larger than the channel to the dispatcher takes."""


class RanksDisagree(TunerError):
    """The ranks of a trial ask whether to stop at different steps."""


class InvalidTransition(TunerError):
    """An attempt was moved to a state that it cannot reach from where it is."""
