"""What is done to a study: each kind of fault finds its own victim, or none just now."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from tests.chaos.keeper import Keeper
from tests.chaos.site import N_GPUS, RETRIES, Site
from tests.chaos.step_log import Line
from tuner import checkpoint_files

#: Longer than a dispatcher may be silent before others take its trials.
_PRESUMED_DEAD_S = (70.0, 80.0)
_MOMENT_S = (2.0, 7.0)


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


def tear_checkpoint(site: Site, chance: random.Random) -> Blow | None:
    """Kills a trial, and cuts off its newest checkpoint as a power cut may."""
    line = _victim(site, chance, rank=0)
    folder = None if line is None else site.files.checkpoints(line.trial)
    newest = checkpoint_files.newest_first(folder)[:1] if folder else []
    if line is None or not newest or not _send(line.pid, signal.SIGKILL):
        return None
    site.charged[line.trial] += 1
    with suppress(FileNotFoundError):
        os.truncate(newest[0], newest[0].stat().st_size // 2)
        site.torn.add((line.trial, int(newest[0].stem.removeprefix("step-"))))
    return Blow(victim=f"trial {line.trial}, {newest[0].name}")


def _signal_trial(site: Site, chance: random.Random, number: signal.Signals) -> Blow | None:
    line = _victim(site, chance)
    if line is None or not _send(line.pid, number):
        return None
    site.charged[line.trial] += 1
    return Blow(victim=f"trial {line.trial} rank {line.rank}")


def _victim(site: Site, chance: random.Random, rank: int | None = None) -> Line | None:
    """A process that trains, of a trial that may fail once more."""
    running = [line for line in site.log.running() if rank in (None, line.rank)]
    running = [line for line in running if site.charged[line.trial] < RETRIES]
    return chance.choice(running) if running else None


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


def kill_fork_server(site: Site, chance: random.Random) -> Blow | None:
    return _kill_child(site, chance, "multiprocessing.forkserver")


def kill_guardian(site: Site, chance: random.Random) -> Blow | None:
    return _kill_child(site, chance, "guardian.py")


def kill_dispatcher_and_guardian(site: Site, chance: random.Random) -> Blow | None:
    """Both at once: the dispatcher is held first, as else it would start another guardian."""
    keeper = _running_keeper(site, chance)
    guardian = None if keeper is None else keeper.child("guardian.py")
    if keeper is None or keeper.process is None or guardian is None:
        return None
    keeper.process.send_signal(signal.SIGSTOP)
    was_there = _send(guardian, signal.SIGKILL)
    keeper.process.send_signal(signal.SIGKILL)
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
    if keeper is None or keeper.process is None:
        return None
    process = keeper.process
    process.send_signal(number)
    undo = None if not lasts_s else partial(process.send_signal, signal.SIGCONT)
    return Blow(victim=keeper.name, lasts_s=lasts_s, undo=undo)


def _kill_child(site: Site, chance: random.Random, word: str) -> Blow | None:
    keeper = _running_keeper(site, chance)
    pid = None if keeper is None else keeper.child(word)
    if keeper is None or pid is None or not _send(pid, signal.SIGKILL):
        return None
    return Blow(victim=keeper.name)


def _running_keeper(site: Site, chance: random.Random) -> Keeper | None:
    running = [keeper for keeper in site.keepers if keeper.is_running()]
    return chance.choice(running) if running else None


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
    "trial: SIGKILL, newest checkpoint torn": tear_checkpoint,
    "dispatcher: SIGKILL": kill_dispatcher,
    "dispatcher: SIGTERM": terminate_dispatcher,
    "dispatcher: SIGSTOP for seconds": pause_dispatcher,
    "dispatcher: SIGSTOP until presumed dead": silence_dispatcher,
    "fork server: SIGKILL": kill_fork_server,
    "guardian: SIGKILL": kill_guardian,
    "dispatcher and guardian: SIGKILL of both": kill_dispatcher_and_guardian,
    "disk: full": fill_disk,
    "GPU: lost (NVML stand-in)": lose_gpu,
}
#: Minutes apart at least: each lasts longer than a minute.
RARE = frozenset({"dispatcher: SIGSTOP until presumed dead"})
