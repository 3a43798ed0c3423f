"""Shows how far a study is in the engine's own list of allocations."""

from __future__ import annotations

import logging
import threading
import time

from tuner.dispatch.notices import Notice, Snapshot, View
from tuner.engines.port import Engine
from tuner.errors import EngineError

_log = logging.getLogger(__name__)

_EVERY_S = 30.0


class ProgressView:
    """A view that reports progress to an engine, and delegates to another view.

    Args:
        view: Shows progress to the user.
        engine: Called in a thread, at most every 30 s, without blocking.
        allocation: The engine's name of the allocation.
    """

    def __init__(self, view: View, engine: Engine, allocation: str) -> None:
        self._view = view
        self._engine = engine
        self._allocation = allocation
        self._last_text = ""
        self._told_at_s = -_EVERY_S
        self._thread: threading.Thread | None = None
        self.refresh_every_s = view.refresh_every_s

    def show(self, notice: Notice) -> None:
        self._view.show(notice)

    def refresh(self, snapshot: Snapshot) -> None:
        self._view.refresh(snapshot)
        text, now_s = progress_text(snapshot), time.monotonic()
        is_busy = self._thread is not None and self._thread.is_alive()
        if text == self._last_text or now_s - self._told_at_s < _EVERY_S or is_busy:
            return
        self._last_text, self._told_at_s = text, now_s
        self._thread = threading.Thread(target=self._tell, args=(text,), daemon=True)
        self._thread.start()

    def _tell(self, text: str) -> None:
        try:
            self._engine.show_progress(self._allocation, text)
        except EngineError as error:
            _log.info("Progress is not shown: %s", error)


def progress_text(snapshot: Snapshot) -> str:
    """`12/64 trials, best 0.962`"""
    limit = f"/{snapshot.n_trials}" if snapshot.n_trials is not None else ""
    values = snapshot.best.values.values() if snapshot.best is not None else ()
    best = f", best {' '.join(f'{value:.4g}' for value in values)}" if values else ""
    return f"{snapshot.n_finished}{limit} trials{best}"
