"""What is done to a study: each kind of fault finds its own victim, or none just now."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from tests.chaos.keeper import Keeper
from tests.chaos.site import N_GPUS, RETRIES, Site
from tests.chaos.step_log import Line
from tuner.checkpoints import layout

#: Longer than a dispatcher may be silent before others take its trials.
_PRESUMED_DEAD_S = (70.0, 80.0)
_MOMENT_S = (2.0, 7.0)
_SECTOR_BYTES = 512
#: For what a dispatcher saves whose database was taken away.
_MAY_END_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Blow:
    """A fault that was done, and is undone later where that is in its nature."""

    victim: str
    lasts_s: float = 0.0
    undo: Callable[[], None] | None = None


Fault: TypeAlias = Callable[[Site, random.Random], Blow | None]


# -- trials ----------------------------------------------------------------------------------


def kill_rank(site: Site, chance: random.Random) -> Blow | None:
    return _signal_trial(site, chance, signal.SIGKILL)


def terminate_rank(site: Site, chance: random.Random) -> Blow | None:
    return _signal_trial(site, chance, signal.SIGTERM)


def stop_rank(site: Site, chance: random.Random) -> Blow | None:
    """For good: `stall_timeout` has to find it."""
    return _signal_trial(site, chance, signal.SIGSTOP)


def kill_finished(site: Site, chance: random.Random) -> Blow | None:
    """A trial whose last step is done and saved, before it has returned."""
    posts = {
        (line.trial, line.attempt, line.rank) for line in site.log.read() if line.what == "post"
    }
    victims = [line for line in _victims(site) if (line.trial, line.attempt, line.rank) in posts]
    return _signal_process(site, chance.choice(victims), signal.SIGKILL) if victims else None


def tear_checkpoint(site: Site, chance: random.Random) -> Blow | None:
    """Kills a trial, and cuts off its newest checkpoint as a power cut may."""
    return _spoil_checkpoint(site, chance, _cut_in_half)


def damage_checkpoint(site: Site, chance: random.Random) -> Blow | None:
    """Kills a trial, and zeroes a sector of its newest checkpoint as a bad disk may."""
    return _spoil_checkpoint(site, chance, partial(_zero_sector, chance))


def _spoil_checkpoint(
    site: Site, chance: random.Random, spoil: Callable[[Path], None]
) -> Blow | None:
    line = _victim(site, chance, rank=0)
    folder = None if line is None else site.files.checkpoints(line.trial)
    newest = layout.newest_first(folder)[:1] if folder else []
    if line is None or not newest or not _send(line.pid, signal.SIGKILL):
        return None
    site.charged[line.trial] += 1
    with suppress(FileNotFoundError):
        spoil(newest[0])
        site.torn.add((line.trial, int(newest[0].stem.removeprefix("step-"))))
    return Blow(victim=f"trial {line.trial}, {newest[0].name}")


def _cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _zero_sector(chance: random.Random, path: Path) -> None:
    n_sectors = path.stat().st_size // _SECTOR_BYTES
    with path.open("r+b") as file:
        file.seek(_SECTOR_BYTES * chance.randrange(n_sectors))
        file.write(bytes(_SECTOR_BYTES))


def _signal_trial(site: Site, chance: random.Random, number: signal.Signals) -> Blow | None:
    line = _victim(site, chance)
    return None if line is None else _signal_process(site, line, number)


def _signal_process(site: Site, line: Line, number: signal.Signals) -> Blow | None:
    if not _send(line.pid, number):
        return None
    site.charged[line.trial] += 1
    return Blow(victim=f"trial {line.trial} rank {line.rank}")


def _victim(site: Site, chance: random.Random, rank: int | None = None) -> Line | None:
    running = [line for line in _victims(site) if rank in (None, line.rank)]
    return chance.choice(running) if running else None


def _victims(site: Site) -> list[Line]:
    """Processes that train, of trials that may fail once more."""
    return [line for line in site.log.running() if site.charged[line.trial] < RETRIES]


# -- dispatchers and what they live on ---------------------------------------------------------


def kill_dispatcher(site: Site, chance: random.Random) -> Blow | None:
    return _signal_dispatcher(site, chance, signal.SIGKILL)


def terminate_dispatcher(site: Site, chance: random.Random) -> Blow | None:
    return _signal_dispatcher(site, chance, signal.SIGTERM)


def pause_dispatcher(site: Site, chance: random.Random) -> Blow | None:
    return _signal_dispatcher(site, chance, signal.SIGSTOP, chance.uniform(*_MOMENT_S))


def silence_dispatcher(site: Site, chance: random.Random) -> Blow | None:
    """So long that the other one, on another host, takes its trials over."""
    if len(site.keepers) < 2 or not all(keeper.is_running() for keeper in site.keepers):
        return None
    return _signal_dispatcher(site, chance, signal.SIGSTOP, chance.uniform(*_PRESUMED_DEAD_S))


def terminate_everything(site: Site, chance: random.Random) -> Blow | None:
    """As a batch system ends a job: the dispatcher, its workers, its guardian, all of them."""
    keeper = _running_keeper(site, chance)
    if keeper is None or not keeper.signal_all(signal.SIGTERM):
        return None
    return Blow(victim=keeper.name)


def cut_off_dispatcher(site: Site, chance: random.Random) -> Blow | None:
    """Away from its database for more than a minute, with the folder of the study still shared."""
    cut_off = [keeper for keeper in site.keepers if keeper.proxy is not None]
    if not cut_off or not all(keeper.is_running() for keeper in site.keepers):
        return None
    keeper = chance.choice(cut_off)
    proxy = keeper.proxy
    assert proxy is not None
    is_silent = chance.random() < 0.5
    if is_silent:
        proxy.freeze()
    else:
        proxy.cut()

    def join_again() -> None:
        proxy.thaw()
        proxy.restore()

    how = "silent" if is_silent else "refused"
    lasts_s = chance.uniform(*_PRESUMED_DEAD_S)
    return Blow(victim=f"{keeper.name}, {how}", lasts_s=lasts_s, undo=join_again)


def take_database_away(site: Site, chance: random.Random) -> Blow | None:
    """Removes, renames or replaces an SQLite file under its dispatcher.

    The dispatcher has to end and to leave all that it knew in a new file, which is put in the
    place of the old one, as its user would.
    """
    keeper = _running_keeper(site, chance)
    if site.database_file is None or keeper is None:
        return None
    if not any(keeper.has_started(line.pid) for line in site.log.running()):
        return None  # One that is about to open the file would only make a new one.
    ways = {"removed": _remove, "renamed": _rename, "replaced": _replace}
    way = chance.choice(list(ways))
    known = set(site.rescued_files())
    site.is_held = True
    ways[way](site.database_file)

    def put_rescued_in_place() -> None:
        try:
            keeper.wait(_MAY_END_S)
            site.put_in_place(set(site.rescued_files()) - known)
        finally:
            site.is_held = False

    return Blow(victim=f"file {way}", lasts_s=chance.uniform(*_MOMENT_S), undo=put_rescued_in_place)


def _remove(path: Path) -> None:
    path.unlink()


def _rename(path: Path) -> None:
    path.replace(path.with_suffix(".old"))


def _replace(path: Path) -> None:
    """Puts another database in its place: an empty one, as a careless restore does."""
    other = path.with_suffix(".other")
    other.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE other (id INTEGER)")
        connection.commit()
    other.replace(path)


def kill_fork_server(site: Site, chance: random.Random) -> Blow | None:
    return _kill_child(site, chance, "multiprocessing.forkserver")


def kill_guardian(site: Site, chance: random.Random) -> Blow | None:
    return _kill_child(site, chance, "guardian.py")


def kill_dispatcher_and_guardian(site: Site, chance: random.Random) -> Blow | None:
    """Both at once: the dispatcher is held first, as else it would start another guardian."""
    keeper = _running_keeper(site, chance)
    guardian = None if keeper is None else keeper.child("guardian.py")
    if keeper is None or guardian is None:
        return None
    keeper.signal(signal.SIGSTOP)
    was_there = _send(guardian, signal.SIGKILL)
    keeper.signal(signal.SIGKILL)
    return Blow(victim=keeper.name if was_there else f"{keeper.name} alone")


def fill_disk(site: Site, chance: random.Random) -> Blow | None:
    """Leaves no room where logs and checkpoints are."""
    if not site.has_own_disk:
        return None
    filler = site.files.root.parent / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    undo = partial(filler.unlink, missing_ok=True)
    return Blow(victim="disk", lasts_s=chance.uniform(*_MOMENT_S), undo=undo)


def lose_gpu(site: Site, chance: random.Random) -> Blow | None:
    """NVML says that a GPU is lost, and later that it is there again."""
    if site.gpus is None or len(site.withdrawn_gpus) >= N_GPUS - 1:
        return None
    number = chance.choice([n for n in range(N_GPUS) if n not in site.withdrawn_gpus])
    site.lost_gpus.add(number)
    site.withdrawn_gpus.add(number)
    site.show_gpus()

    def find_again() -> None:
        site.lost_gpus.discard(number)
        site.show_gpus()

    return Blow(victim=f"GPU {number}", lasts_s=chance.uniform(*_MOMENT_S), undo=find_again)


def _signal_dispatcher(
    site: Site, chance: random.Random, number: signal.Signals, lasts_s: float = 0.0
) -> Blow | None:
    keeper = _running_keeper(site, chance)
    dispatcher = None if keeper is None else keeper.dispatcher
    if keeper is None or dispatcher is None:
        return None
    dispatcher.send_signal(number)
    undo = None if not lasts_s else partial(_send, dispatcher.pid, signal.SIGCONT)
    return Blow(victim=keeper.name, lasts_s=lasts_s, undo=undo)


def _kill_child(site: Site, chance: random.Random, word: str) -> Blow | None:
    keeper = _running_keeper(site, chance)
    pid = None if keeper is None else keeper.child(word)
    if keeper is None or pid is None or not _send(pid, signal.SIGKILL):
        return None
    return Blow(victim=keeper.name)


def _running_keeper(site: Site, chance: random.Random) -> Keeper | None:
    running = [keeper for keeper in site.keepers if keeper.is_running()]
    # What it alone knows must not be lost before it is written.
    return chance.choice(running) if running and not site.is_held else None


def _send(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


#: Of a study; those of a database are in `databases`.
FAULTS: Mapping[str, Fault] = {
    "trial: SIGKILL of a rank": kill_rank,
    "trial: SIGTERM of a rank": terminate_rank,
    "trial: SIGSTOP of a rank": stop_rank,
    "trial: SIGKILL after its last step": kill_finished,
    "trial: SIGKILL, newest checkpoint torn": tear_checkpoint,
    "trial: SIGKILL, newest checkpoint damaged": damage_checkpoint,
    "dispatcher: SIGKILL": kill_dispatcher,
    "dispatcher: SIGTERM": terminate_dispatcher,
    "dispatcher: SIGSTOP for seconds": pause_dispatcher,
    "dispatcher: SIGSTOP until presumed dead": silence_dispatcher,
    "dispatcher: cut off for more than a minute": cut_off_dispatcher,
    "job: SIGTERM of every process": terminate_everything,
    "database: file removed, renamed or replaced": take_database_away,
    "fork server: SIGKILL": kill_fork_server,
    "guardian: SIGKILL": kill_guardian,
    "dispatcher and guardian: SIGKILL of both": kill_dispatcher_and_guardian,
    "disk: full": fill_disk,
    "GPU: lost (NVML stand-in)": lose_gpu,
}
#: Minutes apart at least: each lasts longer than a minute.
RARE = frozenset(
    {
        "dispatcher: SIGSTOP until presumed dead",
        "dispatcher: cut off for more than a minute",
    }
)
