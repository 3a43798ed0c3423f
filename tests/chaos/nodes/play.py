"""One fault after the other on machines, then the studies come to their end and are judged."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.books import Account, find_orphans, settle
from tests.chaos.nodes import history
from tests.chaos.nodes.cluster import STORED, STUDIES, Cluster, Loss, run_cluster
from tests.chaos.nodes.faults import ENOUGH_GRACE, FAULTS, OBJECT_STORE, NodeFault
from tests.chaos.nodes.network import address_of
from tests.chaos.play import Play, Struck
from tests.chaos.site import Site
from tests.chaos.step_log import Line, without_late

#: What a dispatcher says of a database that lacks what it had confirmed.
_REFUSED = "The database has lost changes that it had confirmed"
#: Until all machines train again; then the next fault comes in any case.
_RECOVERY_S = 120.0
_POLL_S = 0.05
#: For each study; on three machines enough for about a minute.
BATCH = 40


@dataclass(frozen=True, kw_only=True)
class NodeChaos:
    """What to do.

    Args:
        n_nodes: Machines; the first and the last have the same host name.
        seed: Of all chance.
        faults: Names of those that are done, each `rounds` times.
        rounds: Each in another order.
        studies: Of `STUDIES`: on CPU slots, and on stand-in GPUs.
        batch: Trials that a study is allowed at a time.
    """

    n_nodes: int = 3
    seed: int = 7
    faults: Sequence[str] = tuple(FAULTS)
    rounds: int = 1
    studies: Sequence[str] = STUDIES
    batch: int = BATCH


@dataclass(frozen=True, kw_only=True)
class Moved:
    """What the loss of a machine meant for the trials that ran there."""

    kind: str
    n_trials: int
    #: Until another dispatcher ended the record of the last one there; None where they did it.
    taken_over_s: float | None
    #: Until the first and the last of them had begun elsewhere, where a device had to be free.
    #: None where there was none.
    first_s: float | None
    last_s: float | None
    #: Steps that they did again.
    n_again: int
    #: What they did after they had begun elsewhere, unacknowledged: steps, and for how long.
    n_late: int
    late_s: float


@dataclass(frozen=True, kw_only=True)
class NodeResult:
    """What happened, and what was lost."""

    chaos: NodeChaos
    took_s: float
    struck: list[Struck]
    moved: list[Moved]
    accounts: list[Account]
    #: Rows of the database's own history of all writes.
    n_changes: int
    findings: list[str]


@dataclass(kw_only=True)
class NodePlay(Play):
    """Strikes with one fault at a time, and waits until all machines work again.

    Args:
        cluster: The machines.
        faults: To be done, in this order.
    """

    cluster: Cluster
    faults: Sequence[tuple[str, NodeFault]]

    def _strike_until(self, ends_at_s: float) -> None:
        for kind, fault in self.faults:
            self._keep_for(_RECOVERY_S, self.cluster.are_all_at_work)
            blow = fault(self.cluster, self.chance)
            self._note(kind, self.sites[0], kind, blow)
            self._keep_for(blow.lasts_s)
            self._undo(everything=True)
        self._keep_for(_RECOVERY_S, self.cluster.are_all_at_work)

    def _keep_for(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> None:
        ends_at_s = time.monotonic() + seconds
        while time.monotonic() < ends_at_s and not is_over():
            self._keep_all()
            time.sleep(_POLL_S)


def run_nodes(chaos: NodeChaos, folder: Path, say: Callable[[str], None] = print) -> NodeResult:
    """Runs two studies on machines of their own through faults.

    Args:
        chaos: What to do.
        folder: Where everything goes; empty.
        say: Hears what happens.

    Raises:
        TimeoutError: If a study does not come to its end.
    """
    chaos_id, chance = secrets.token_hex(8), random.Random(chaos.seed)
    hosts = [f"node-{number}" for number in range(chaos.n_nodes - 1)]
    with run_cluster(folder, [*hosts, hosts[0]], chaos.studies, chaos_id) as cluster:
        play = NodePlay(
            sites=cluster.sites,
            database=cluster.server,
            chance=chance,
            interval_s=0.0,
            batch=chaos.batch,
            say=say,
            cluster=cluster,
            faults=list(_in_order(chaos, chance)),
        )
        took_s = play.run(0.0)
        orphans = find_orphans(chaos_id)
        changes = history.read(cluster.server)
        for site in cluster.sites:
            if site.study == STORED:
                site.uploaded = history.uploads(changes, STORED)
        accounts = [settle(site) for site in (*cluster.sites, *cluster.scaled)]
        findings = [f"{each.study}: {finding}" for each in accounts for finding in each.findings]
        findings += _judge_forgotten(cluster)
        findings += [*history.judge(changes), *_judge_places(cluster, changes), *cluster.findings]
        if orphans:
            findings.append(f"{len(orphans)} processes have no owner: {orphans}")
        moved = [_moved(cluster, loss, changes) for loss in cluster.losses]
        findings += [
            f"{each.kind}: {each.n_again} steps done again, though trials had time to save"
            for each in moved
            if each.kind == ENOUGH_GRACE and each.n_again
        ]
    return NodeResult(
        chaos=chaos,
        took_s=took_s,
        struck=play.struck,
        moved=moved,
        accounts=accounts,
        n_changes=len(changes),
        findings=findings,
    )


def _in_order(chaos: NodeChaos, chance: random.Random) -> Iterator[tuple[str, NodeFault]]:
    for _ in range(chaos.rounds):
        for name in chance.sample(list(chaos.faults), len(chaos.faults)):
            yield name, FAULTS[name]


def _judge_forgotten(cluster: Cluster) -> Iterator[str]:
    """A dispatcher whose confirmed changes are gone must not go on as if they were there."""
    for site in cluster.sites:
        outputs = [path.read_text() for keeper in site.keepers for path in keeper.outputs]
        n_refused = sum(_REFUSED in each for each in outputs)
        if n_refused < len(site.forgotten):
            yield f"{site.study}: confirmed changes were lost, and no dispatcher has said so"


def _judge_places(cluster: Cluster, changes: Sequence[history.Change]) -> Iterator[str]:
    """Each attempt ran on the machine whose dispatcher the database has acknowledged for it."""
    for site in (*cluster.sites, *cluster.scaled):
        acknowledged = history.places(changes, site.study)
        for line in site.log.read():
            place = acknowledged.get((line.trial, line.attempt))
            here = address_of(line.namespace)
            is_forgotten = any(begin <= line.at_s <= end for begin, end in site.forgotten)
            if line.what == "begun" and place != here and not is_forgotten:
                yield (
                    f"{site.study}: trial {line.trial} (attempt {line.attempt}) ran on "
                    f"{here}, and the database has {place} for it"
                )


def _moved(cluster: Cluster, loss: Loss, changes: Sequence[history.Change]) -> Moved:
    found = [
        _moved_trial(site, trial, loss)
        for site in cluster.sites
        for study, trial in loss.trials
        if study == site.study
    ]
    elsewhere_s = [each.elsewhere_s for each in found if each.elsewhere_s is not None]
    return Moved(
        kind=loss.kind,
        n_trials=len(found),
        taken_over_s=max(
            (at_s - loss.at_s for at_s in history.taken_over(changes, loss.place, loss.at_s)),
            default=None,
        ),
        first_s=min(elsewhere_s, default=None),
        last_s=max(elsewhere_s, default=None),
        n_again=sum(each.n_again for each in found),
        n_late=sum(each.n_late for each in found),
        late_s=max((each.late_s for each in found), default=0.0),
    )


@dataclass(frozen=True, kw_only=True)
class _MovedTrial:
    elsewhere_s: float | None
    n_again: int = 0
    n_late: int = 0
    late_s: float = 0.0


def _moved_trial(site: Site, trial: int, loss: Loss) -> _MovedTrial:
    lines = [line for line in site.log.read() if line.trial == trial and line.rank == 0]
    later = [line for line in lines if line.at_s > loss.at_s]
    begun = next(
        (line for line in later if line.what == "begun" and line.namespace != loss.address), None
    )
    if begun is None:
        return _MovedTrial(elsewhere_s=None)  # It came to its end there.
    late = [line for line in later if line.namespace == loss.address and line.at_s > begun.at_s]
    return _MovedTrial(
        elsewhere_s=begun.at_s - loss.at_s,
        n_again=_count_again(lines, begun),
        n_late=sum(line.what == "step" for line in late),
        late_s=max((line.at_s - begun.at_s for line in late), default=0.0),
    )


def _count_again(lines: Sequence[Line], begun: Line) -> int:
    kept = without_late(lines)
    before = {line.step for line in kept if line.what == "step" and line.at_s <= begun.at_s}
    start = next(
        (line.step for line in kept if line.what == "from" and line.attempt == begun.attempt), 0
    )
    return sum(step >= start for step in before)


def faults_named(words: str, studies: Collection[str]) -> Mapping[str, NodeFault]:
    """Those whose names have one of some comma-separated parts in them.

    Args:
        words: The parts; empty for all faults.
        studies: Of the run: without `STORED` there is no object store.
    """
    parts = [each.strip() for each in words.split(",")]
    return {
        name: fault
        for name, fault in FAULTS.items()
        if any(part in name for part in parts)
        and (STORED in studies or not name.startswith(OBJECT_STORE))
    }
