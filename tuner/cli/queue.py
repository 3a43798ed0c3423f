"""`tuner queue`: this user's studies that run one after the other on this machine.

As in `tuner.cli.main`, a command imports what it needs when it is called.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.error_exit import Edge
from tuner.config import load_study_file
from tuner.errors import ConfigError

if TYPE_CHECKING:
    from tuner.queue.entries import Queue

app = typer.Typer()

_FORMS = (
    "Write: tuner queue study.yaml, tuner queue list, tuner queue move NUMBER PLACE, or tuner "
    "queue remove NUMBER."
)


@app.command()
def queue(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STUDY | list | move NUMBER PLACE | remove NUMBER]",
            help="A study file puts the study into the queue. Default: list.",
        ),
    ] = None,
) -> None:
    """Adds a study to your queue on this machine, or lists, moves and removes queued studies."""
    with Edge(False):
        from tuner.queue.entries import Queue, queue_folder

        own = Queue(queue_folder(os.environ))
        match words or ["list"]:
            case ["list"]:
                print(_list(own))
            case ["move", number, place]:
                own.move(_number(number), _number(place))
                print(_list(own))
            case ["remove", number]:
                own.remove(_number(number))
                _forget_if_empty(own)
                print(_list(own))
            case ["move" | "remove", *_] | ["list", *_] | [_, _, *_]:
                raise ConfigError(f"takes other words. {_FORMS}", key="tuner queue")
            case [file]:
                print(_add(own, Path(file)))


def _add(own: Queue, file: Path) -> str:
    from tuner.queue.entries import KEPT_VARIABLES, Entry

    config = load_study_file(file, environ=os.environ)
    added = own.add(
        Entry(
            id=0,
            study=config.study,
            file=str(config.path),
            folder=str(Path.cwd()),
            python=sys.executable,
            priority=config.priority,
            environment={key: os.environ[key] for key in KEPT_VARIABLES if key in os.environ},
        )
    )
    started = _start(own)
    waiting = [each.id for each in own.entries() if each.is_waiting]
    place = f"is number {added.id} of your queue on this machine"
    if added.id in waiting[1:]:
        place += f", behind {waiting.index(added.id)} others"
    lines = [f"Study '{added.study}' {place}. Its output: {own.log(added.id)}", started]
    return "\n".join(filter(None, lines))


def _list(own: Queue) -> str:
    from tuner.terminal.machine.queue import queue_text

    entries = own.entries()
    note = _start(own) if any(each.exit_code is None for each in entries) else ""
    return "\n".join(filter(None, [queue_text(entries, own.log), note]))


def _start(own: Queue) -> str:
    """Starts the queue's process unless it runs; returns what it survives."""
    from tuner.queue import service
    from tuner.queue.runner import is_running

    def is_at_work() -> bool:
        return is_running(own.folder) or all(each.exit_code is not None for each in own.entries())

    if is_running(own.folder):
        return ""
    return service.start(own.folder / "runner.log", is_at_work).text


def _forget_if_empty(own: Queue) -> None:
    from tuner.queue import service
    from tuner.queue.runner import is_running

    if not is_running(own.folder):
        own.end_when_empty(service.forget)


def _number(word: str) -> int:
    if not word.isdecimal():
        raise ConfigError(f"is given {word!r} for a number. {_FORMS}", key="tuner queue")
    return int(word)
