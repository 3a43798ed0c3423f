"""Requests more allocations from the engine while the study has more trials than devices.

Among the dispatchers that work in allocations, the one that started first does this. If it dies,
the next takes over when its record is closed. Allocations are reserved under the study's lock, so
that two dispatchers do not request twice as many.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from dataclasses import asdict
from pathlib import Path

import sqlalchemy as sa

from tuner.checkpoints.paths import StudyFiles
from tuner.compose.allocations.lent import Lent
from tuner.compose.allocations.submission import Plan, submit_up_to
from tuner.config import StudyConfig
from tuner.config.sections.engine import NodeRange
from tuner.dispatch.notices import Notice, Snapshot, View
from tuner.engines.port import AllocationOrder
from tuner.errors import ConfigError, TunerError
from tuner.monitoring.demand import devices_wanted
from tuner.store.connection.database import open_database
from tuner.store.schema.models import DispatcherRow

_log = logging.getLogger(__name__)

_EVERY_S = 15.0
#: Without a limit of trials there is always one more.
_ANY_NUMBER = 100_000
_PATHS = ("folder", "log_folder", "home", "code")


def write_order(order: AllocationOrder, files: StudyFiles) -> None:
    """Keeps an order for dispatchers on nodes, which ask for more of the same."""
    files.root.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(order), default=str)
    aside = files.order.with_suffix(".new")
    aside.write_text(text, encoding="utf-8")
    aside.replace(files.order)


def begin(plan: Plan, nodes: NodeRange | None) -> NodeRange:
    """Writes the order for the nodes, and returns the initial number of nodes."""
    files = StudyFiles(folder=plan.config.home, study=plan.config.study)
    wanted = nodes or plan.settings.nodes
    write_order(plan.order, files)
    least = max(1, wanted.least)
    return NodeRange(least=least, most=least)


def read_order(files: StudyFiles) -> AllocationOrder:
    """Reads the submission order.

    Raises:
        ConfigError: If there is none.
    """
    try:
        values = json.loads(files.order.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        problem = f"needs {files.order}, which tuner submit --adapt writes: {error}."
        raise ConfigError(problem, key="--adapt") from error
    paths = {key: Path(values[key]) for key in _PATHS if values[key] is not None}
    lists = {key: tuple(values[key]) for key in ("command", "setup")}
    return AllocationOrder(**{**values, **paths, **lists})


class AdaptationView:
    """A view that requests more nodes in a thread, and delegates progress to another view.

    Args:
        view: Shows progress.
        config: The study.
        lent: The allocation in which this dispatcher runs.
        n_devices: Number of this dispatcher's devices; other nodes are expected to have as many.
        dispatcher_id: The record of this dispatcher.
    """

    def __init__(
        self, view: View, config: StudyConfig, lent: Lent, *, n_devices: int, dispatcher_id: int
    ) -> None:
        files = StudyFiles(folder=config.home, study=config.study)
        self._plan = Plan(
            config=config,
            settings=lent.settings,
            engine=lent.engine,
            order=read_order(files),
            remarks=(),
        )
        self._view = view
        self._n_devices = max(1, n_devices)
        self._dispatcher_id = dispatcher_id
        self._looked_at_s = time.monotonic()
        self._thread: threading.Thread | None = None
        self.refresh_every_s = view.refresh_every_s

    def show(self, notice: Notice) -> None:
        self._view.show(notice)

    def refresh(self, snapshot: Snapshot) -> None:
        self._view.refresh(snapshot)
        now_s = time.monotonic()
        is_busy = self._thread is not None and self._thread.is_alive()
        if is_busy or snapshot.is_stopping or now_s - self._looked_at_s < _EVERY_S:
            return
        self._looked_at_s = now_s
        n_nodes = nodes_wanted(snapshot, self._n_devices)
        n_nodes = min(n_nodes, self._plan.settings.nodes.most)
        if n_nodes > 1 and not snapshot.idle_devices:
            self._thread = threading.Thread(target=self._grow, args=(n_nodes,), daemon=True)
            self._thread.start()

    def _grow(self, n_nodes: int) -> None:
        try:
            if self._is_first():
                change = submit_up_to(self._plan, n_nodes)
                for each in change.new:
                    _log.info("Asked %s for one more node: %s", change.engine, each.name)
        except TunerError as error:
            _log.warning("No more nodes were asked for: %s", error)

    def _is_first(self) -> bool:
        """Whether no dispatcher in another allocation of the study is older and not ended."""
        database = open_database(self._plan.config.storage, read_only=True)
        try:
            with database.engine.connect() as connection:
                own = sa.select(DispatcherRow.study_id).where(
                    DispatcherRow.id == self._dispatcher_id
                )
                first = sa.select(sa.func.min(DispatcherRow.id)).where(
                    DispatcherRow.study_id == own.scalar_subquery(),
                    DispatcherRow.ended_at.is_(None),
                    DispatcherRow.allocation_id.is_not(None),
                )
                return bool(connection.execute(first).scalar() == self._dispatcher_id)
        finally:
            database.close()


def nodes_wanted(snapshot: Snapshot, n_devices: int) -> int:
    """Number of nodes whose devices the unfinished trials of the budget could use at once."""
    if snapshot.n_trials is None:
        return _ANY_NUMBER
    return math.ceil(devices_wanted(snapshot) / n_devices)
