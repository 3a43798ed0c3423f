"""What is done to machines: each fault chooses one, and says how it is undone."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import psutil

from tests.chaos.faults import Blow
from tests.chaos.nodes.cluster import STORED, Cluster
from tests.chaos.nodes.network import Space
from tests.chaos.nodes.node import Node
from tests.chaos.nodes.scaled import N_NODES, ScaledStudy
from tests.chaos.nodes.server import SERVER
from tests.chaos.nodes.store import Store
from tuner.errors import EXIT_BUDGET_REACHED

NodeFault: TypeAlias = Callable[[Cluster, random.Random], Blow]

#: Longer than a dispatcher may be silent before others take its trials, and shorter.
_LONG_S, _SHORT_S, _MOMENT_S = 90.0, 10.0, 5.0
_CLOCK_S = 20.0
_STORE_S = 60.0
_OUTAGE_S = 75.0
#: What a replica lacks, and when every dispatcher has noticed that, at the latest.
_LACKS_S, _NOTICED_S = 1.5, 10.0
_HOUR_S = 3600.0
_PREEMPTED = "preempted, {:g} s"
#: A notice in which every trial saves: no step is to be done again.
ENOUGH_GRACE = _PREEMPTED.format(30.0)
#: Begin of the names of its faults.
OBJECT_STORE = "object store"
#: Others continue within that time.
_ELSEWHERE_S = 80.0
#: For a dispatcher that was cut off and hears that it was taken over.
_MAY_END_S = 60.0
_POLL_S = 0.05
#: Codes with which a dispatcher may end that nothing has happened to.
_MAY_BE = (EXIT_BUDGET_REACHED,)


# -- power and processes -----------------------------------------------------------------------


def lose_power(cluster: Cluster, chance: random.Random) -> Blow:
    node = _choose(cluster, chance)
    node.is_held = True
    cluster.note_loss("power", node)
    node.lose_power()
    return Blow(victim=node.name, lasts_s=_ELSEWHERE_S, undo=partial(_release, node))


def restart(cluster: Cluster, chance: random.Random) -> Blow:
    """All of it is gone and back at once, as a container that is started again on its machine.

    Its GPUs are still leased to its former self, which can no longer be checked.
    """
    node = _choose(cluster, chance)
    cluster.note_loss("restarted", node)
    n_codes = {keeper.name: len(keeper.codes) for keeper in cluster.keepers(node)}
    node.lose_power()

    def judge() -> None:
        for keeper in cluster.keepers(node):
            # The first one is of what was killed.
            codes = keeper.codes[n_codes[keeper.name] + 1 :]
            if any(code not in _MAY_BE for code in codes):
                cluster.findings.append(f"after a restart {keeper.name} ended with {codes}")

    return Blow(victim=node.name, lasts_s=_ELSEWHERE_S, undo=judge)


def freeze(seconds: float, cluster: Cluster, chance: random.Random) -> Blow:
    node = _choose(cluster, chance)
    if seconds >= _LONG_S:
        cluster.note_loss("frozen", node)
    node.freeze()

    def thaw() -> None:
        node.thaw()
        for keeper in cluster.keepers(node):
            keeper.go_on()

    return Blow(victim=node.name, lasts_s=seconds, undo=thaw)


# -- the network -------------------------------------------------------------------------------


def pull_cable(seconds: float, cluster: Cluster, chance: random.Random) -> Blow:
    """Away from the database; the folder of the study is still shared."""
    node = _choose(cluster, chance)
    if seconds >= _LONG_S:
        cluster.note_loss("cable", node)
    node.is_held = True  # Who types the command meanwhile is only told that there is no database.
    node.pull_cable()

    def put_back() -> None:
        node.put_cable_back()
        _release(node)

    return Blow(victim=node.name, lasts_s=seconds, undo=put_back)


def pull_cable_for_good(cluster: Cluster, chance: random.Random) -> Blow:
    """A machine that is never reached again, and is thrown away."""
    node = _choose(cluster, chance)
    cluster.note_loss("cable", node)
    node.is_held = True
    node.pull_cable()

    def throw_away() -> None:
        node.lose_power()
        _release(node)

    return Blow(victim=node.name, lasts_s=_LONG_S, undo=throw_away)


def lose_one_way(lose: Callable[[Node], None], cluster: Cluster, chance: random.Random) -> Blow:
    node = _choose(cluster, chance)
    cluster.note_loss("one way", node)
    node.is_held = True
    lose(node)

    def lose_nothing() -> None:
        node.lose_nothing()
        _release(node)

    return Blow(victim=node.name, lasts_s=_LONG_S, undo=lose_nothing)


# -- the database and the clock --------------------------------------------------------------


def fail_over(cluster: Cluster, chance: random.Random) -> Blow:
    """A replica takes the server's place that lacks what was committed in the last second."""
    server = cluster.server
    server.add_replica()
    server.lose_replica()
    cut_at_s = cluster.now_s()
    time.sleep(_LACKS_S)
    server.fail_over()
    forgotten = (cut_at_s, cluster.now_s() + _NOTICED_S)
    for site in cluster.sites:
        site.forgotten.append(forgotten)
    return Blow(victim=f"server, {_LACKS_S:g} s are lost", lasts_s=_NOTICED_S)


def cut_off_server(cluster: Cluster, chance: random.Random) -> Blow:
    """Longer than a dispatcher may be silent. None is dead, whichever is connected again first.

    Its cable is pulled: each dispatcher tries to connect at its own times, seconds apart.
    """
    n_codes = [
        (keeper, len(keeper.codes), f"{site.study} on {keeper.name}")
        for site in cluster.sites
        for keeper in site.keepers
    ]
    cluster.network.pull(SERVER)
    time.sleep(_OUTAGE_S)
    cluster.network.put_back(SERVER)

    def judge() -> None:
        for keeper, n_before, place in n_codes:
            codes = keeper.codes[n_before:]
            if any(code not in _MAY_BE for code in codes):
                cluster.findings.append(f"after an outage of the database {place}: {codes}")

    return Blow(victim=f"server, {_OUTAGE_S:g} s", lasts_s=_CLOCK_S, undo=judge)


def set_clock(offset_s: float, cluster: Cluster, chance: random.Random) -> Blow:
    """An hour ahead or back, and right again afterwards: time jumps twice."""
    node = _choose(cluster, chance)
    node.clock.set(offset_s)
    return Blow(victim=node.name, lasts_s=_CLOCK_S, undo=partial(node.clock.set, 0.0))


def refuse_uploads(cluster: Cluster, chance: random.Random) -> Blow:
    """The object store answers 503 to everything."""
    store = _store(cluster)
    store.refuse()
    return Blow(victim="store", lasts_s=_STORE_S, undo=store.serve)


def cut_uploads(cluster: Cluster, chance: random.Random) -> Blow:
    """Uploads end in the middle, or their answers are lost: one each second."""
    store = _store(cluster)
    for _ in range(int(_CLOCK_S)):
        store.cut_next(is_heard=chance.random() < 0.5)
        time.sleep(1.0)
    return Blow(victim=f"store, {_CLOCK_S:g} uploads")


def _store(cluster: Cluster) -> Store:
    assert cluster.store is not None, f"the study {STORED} is not in this run"
    return cluster.store


# -- engines -----------------------------------------------------------------------------------


def requeue_too_early(cluster: Cluster, chance: random.Random) -> Blow:
    """The engine takes a node for lost and starts its allocation again, while all of it runs.

    The new node has the host name and the GPUs of the old one.
    """
    node = _choose(cluster, chance)
    cluster.note_loss("requeued", node)
    old_address = node.address
    node.pull_cable()
    old = node.leave_behind()
    left = [keeper.leave_behind() for keeper in cluster.keepers(node)]

    def come_back() -> None:
        cluster.network.put_back(old_address)
        cluster.findings += _judge_left(old, [each for each in left if each is not None])
        old.end()

    return Blow(victim=node.name, lasts_s=_LONG_S, undo=come_back)


def _judge_left(old: Space, dispatchers: list[subprocess.Popen[bytes]]) -> list[str]:
    """Processes of an allocation that another one has replaced have to end by themselves."""
    give_up_at_s = time.monotonic() + _MAY_END_S
    for each in dispatchers:
        with suppress(subprocess.TimeoutExpired):
            each.wait(max(0.0, give_up_at_s - time.monotonic()))
    while (pids := old.pids()) and time.monotonic() < give_up_at_s:
        time.sleep(_POLL_S)
    if not pids:
        return []
    return [f"of an allocation that was replaced still runs: {_told(pid)}" for pid in pids]


def _told(pid: int) -> str:
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return f"{process.status()} {process.cmdline()} of {process.ppid()}"
    return str(pid)


def preempt(grace_s: float, cluster: Cluster, chance: random.Random) -> Blow:
    """SIGTERM to every process of a node; what is left after the grace is killed."""
    node = _choose(cluster, chance)
    cluster.note_loss(_PREEMPTED.format(grace_s), node)
    node.is_held = True
    node.space.signal(signal.SIGTERM)

    def end() -> None:
        node.lose_power()
        _release(node)

    if not grace_s:
        node.lose_power()
    return Blow(victim=node.name, lasts_s=grace_s, undo=end)


def reach_time_limit(cluster: Cluster, chance: random.Random) -> Blow:
    """The dispatcher alone has notice; all is killed while a trial saves."""
    node = _choose(cluster, chance)
    cluster.note_loss("time limit", node)
    numbers = {(study, line.trial) for study, line in cluster.running(node)}
    folders = [
        site.files.checkpoints(number)
        for site in cluster.sites
        for study, number in numbers
        if study == site.study
    ]
    node.is_held = True
    for keeper in cluster.keepers(node):
        keeper.signal(signal.SIGTERM)
    give_up_at_s = time.monotonic() + _SHORT_S
    names: list[str] = []
    while not names and time.monotonic() < give_up_at_s:
        names = [path.name for each in folders for path in each.glob("*.partial-*")]
    node.lose_power()
    saving = names[0] if names else "in no save"
    return Blow(victim=f"{node.name}, {saving}", lasts_s=_MOMENT_S, undo=partial(_release, node))


def scale(cluster: Cluster, chance: random.Random) -> Blow:
    """A study of its own, whose nodes an engine lends over ssh."""
    ScaledStudy(cluster=cluster, name=f"scaled-{len(cluster.scaled)}").play()
    return Blow(victim=f"{', '.join(map(str, N_NODES))} nodes, submitted twice")


def _choose(cluster: Cluster, chance: random.Random) -> Node:
    return chance.choice([node for node in cluster.nodes if node.is_on])


def _release(node: Node) -> None:
    """Somebody types the command again, on a machine that is switched on for it if need be."""
    node.is_held = False


FAULTS: Mapping[str, NodeFault] = {
    "node: power lost": lose_power,
    "node: restarted at once": restart,
    "node: frozen for 10 s": partial(freeze, _SHORT_S),
    "node: frozen for 90 s": partial(freeze, _LONG_S),
    "network: cable pulled for 5 s": partial(pull_cable, _MOMENT_S),
    "network: cable pulled for 90 s": partial(pull_cable, _LONG_S),
    "network: cable pulled for good": pull_cable_for_good,
    "network: requests lost for 90 s": partial(lose_one_way, Node.lose_requests),
    "network: answers lost for 90 s": partial(lose_one_way, Node.lose_answers),
    "database: replica without the last second": fail_over,
    "database: cut off for 75 s": cut_off_server,
    f"{OBJECT_STORE}: 503 for 60 s": refuse_uploads,
    f"{OBJECT_STORE}: uploads cut": cut_uploads,
    "clock: an hour ahead for 20 s": partial(set_clock, _HOUR_S),
    "clock: an hour back for 20 s": partial(set_clock, -_HOUR_S),
    "engine: requeued while it runs": requeue_too_early,
    "engine: preempted, no grace": partial(preempt, 0.0),
    "engine: preempted, 5 s of grace": partial(preempt, 5.0),
    "engine: preempted, 30 s of grace": partial(preempt, 30.0),
    "engine: time limit within a save": reach_time_limit,
    "engine: scaled up and down": scale,
}
