"""The process that runs a study for `tuner.run` and `tuner.tune`.

It reads its call from standard input and replies through a pipe. Standard input stays open as long
as the calling process lives: when that ends, in any way, the study is stopped as by Ctrl-C, so that
no dispatcher is left unattended.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import IO, cast

import optuna
from rich.console import Console

from tuner.api.arguments import config_of_text
from tuner.api.messages import Call, Finished, Refused
from tuner.api.sender import Sender
from tuner.api.view import LineSender, Notes, SendingView
from tuner.compose.start import run_study
from tuner.config import StudyConfig, load_study_file
from tuner.dispatch.notices import View
from tuner.errors import EXIT_INTERRUPTED, EXIT_STUDY_FAILED, ConfigError, TunerError
from tuner.terminal import wording
from tuner.terminal.studies import confirmation_lines

_WIDTH_OF_LINES = 240
_LOOK_AT_PARENT_EVERY_S = 1.0


def main(words: Sequence[str]) -> int:
    """Runs the study; returns the exit code of the command line.

    Args:
        words: The descriptor of the pipe to the caller, and the caller's process id.
    """
    # A parent may have had them ignored (a shell's `&`).
    signal.signal(signal.SIGINT, signal.default_int_handler)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.getLogger("tuner").addHandler(logging.NullHandler())
    sender = Sender(int(words[0]))
    try:
        lifeline = _own_stdin()
        call = Call.decode(_first_line(lifeline))
        _stop_without_parent(lifeline, int(words[1]))
        return _answer(call, sender)
    except KeyboardInterrupt:
        # Before the dispatcher's own handler: no trial was started.
        text = "Interrupted before a trial was started. Nothing is lost."
        sender.send(Finished(exit_code=EXIT_INTERRUPTED, summary=text))
        return EXIT_INTERRUPTED
    finally:
        sender.close()


def _answer(call: Call, sender: Sender) -> int:
    try:
        config = _config_of(call)
        sys.path[:0] = [each for each in call.import_path if each not in sys.path]
        finished = _run(config, call, sender)
    except TunerError as error:
        sender.send(
            Refused(
                error=type(error).__name__,
                message=_reworded(call, str(error)),
                exit_code=error.exit_code,
                key=error.key if isinstance(error, ConfigError) else None,
            )
        )
        return error.exit_code
    except Exception as error:  # the edge: an accident of ours becomes the caller's exception
        logging.getLogger("tuner").error("accident", exc_info=error)
        traceback.print_exc()
        text = f"The tuner had an accident: {type(error).__name__}: {error}"
        sender.send(Refused(error="StudyFailed", message=text, exit_code=EXIT_STUDY_FAILED))
        return EXIT_STUDY_FAILED
    sender.send(finished)
    return finished.exit_code


def _config_of(call: Call) -> StudyConfig:
    if call.text is None:
        return load_study_file(
            Path(call.file),
            overrides=call.overrides,
            environ=os.environ,
            study=call.study,
            trials=call.trials,
        )
    return config_of_text(call.text, Path(call.folder))


def _run(config: StudyConfig, call: Call, sender: Sender) -> Finished:
    def open_view() -> AbstractContextManager[View]:
        if call.is_drawn:
            return Notes(console.file)
        from tuner.compose.wiring import view_of  # SQLAlchemy: while the fork server starts

        return view_of(config, console)

    lines = cast(IO[str], LineSender(sender, partial(_reworded, call)))
    console = Console() if call.draws else Console(file=lines, width=_WIDTH_OF_LINES)
    end = run_study(config, console, os.environ, view=SendingView(sender, open_view))
    result = end.result
    summary = [
        f"{result.reason}: {result.n_completed} completed, {result.n_pruned} pruned, "
        f"{result.n_failed} failed"
    ]
    if end.best:
        summary.append(
            f"best: {wording.values_text(end.best.values)} (trial {end.best.number}: "
            f"{wording.settings(end.best.params)})"
        )
    summary += confirmation_lines(end.confirmation)
    if result.is_interrupted:
        summary.append("Stopped; everything is saved. The same call continues the study.")
    return Finished(exit_code=end.exit_code, summary="\n".join(summary))


def _reworded(call: Call, text: str) -> str:
    """Adapts a message's advice to users who called a function instead of the command line."""
    if call.text is None:
        return text
    return text.replace("--study NEW_NAME", "name='NEW_NAME'")


def _own_stdin() -> int:
    """Moves standard input to a descriptor that no trial inherits, and leaves an empty one."""
    moved = os.dup(0)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    return moved


def _first_line(fd: int) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        part = os.read(fd, 1 << 16)
        if not part:
            raise KeyboardInterrupt
        data += part
    return data


def _stop_without_parent(fd: int, parent: int) -> None:
    watch = threading.Thread(target=_watch_parent, args=(fd, parent), daemon=True)
    watch.start()


def _watch_parent(fd: int, parent: int) -> None:
    """Interrupts this process when the caller is gone.

    The pipe reports this at once. If a fork of the caller holds it too, the parent's id does.
    """
    while os.getppid() == parent:
        ready, _, _ = select.select([fd], [], [], _LOOK_AT_PARENT_EVERY_S)
        if ready and not os.read(fd, 1):
            break
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
