"""Alerts about a dispatcher's study, each raised once until it is over."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from tuner.devices.idle_causes import CAUSE_WORDS, IdleCause
from tuner.dispatch.notices import Snapshot
from tuner.queries.alerts import (
    MIN_IDLE_S,
    REMEDIES,
    Alert,
    AlertKind,
    failure_alert,
    idle_alert,
)

#: Intended causes of a study without activity.
_WANTED = frozenset({IdleCause.PAUSED.value, IdleCause.NOTHING_LEFT.value})


class AlertWatch:
    """Looks at one study, again and again."""

    def __init__(self) -> None:
        #: When a condition for an alert started, in seconds.
        self._since_s: dict[Hashable, float] = {}
        self._given: set[Hashable] = set()

    def look(self, snapshot: Snapshot, now_s: float) -> list[Alert]:
        """Checks for alerts.

        Args:
            snapshot: The state of the study.
            now_s: The current time in seconds, on a monotonic clock.

        Returns:
            New alerts since the last call.
        """
        began = dict(self._began(snapshot))
        self._since_s = {key: self._since_s.get(key, now_s) for key in began}
        found = {} if snapshot.is_stopping else dict(self._alerts(snapshot, began, now_s))
        new = [alert for key, alert in found.items() if key not in self._given]
        self._given = set(found)
        return new

    def _began(self, snapshot: Snapshot) -> Iterator[tuple[Hashable, str]]:
        """Current conditions, with their device or causes."""
        for label, cause in snapshot.idle_causes.items():
            yield (IdleCause(cause), label), label
        causes = sorted(set(snapshot.idle_causes.values()))
        if not snapshot.running and causes and not _WANTED.issuperset(causes):
            words = (CAUSE_WORDS[IdleCause(each)] for each in causes)
            yield AlertKind.STANDSTILL, ", ".join(words)

    def _alerts(
        self, snapshot: Snapshot, began: dict[Hashable, str], now_s: float
    ) -> Iterator[tuple[Hashable, Alert]]:
        lasting = [key for key in began if now_s - self._since_s[key] >= MIN_IDLE_S]
        for cause in REMEDIES:
            labels = [key[1] for key in lasting if isinstance(key, tuple) and key[0] is cause]
            if labels:
                yield cause, idle_alert(cause, labels)
        if AlertKind.STANDSTILL in lasting:
            text = f"no trial has run for over a minute ({began[AlertKind.STANDSTILL]})"
            yield AlertKind.STANDSTILL, Alert(kind=AlertKind.STANDSTILL, text=text)
        alert = failure_alert(snapshot.n_failed, snapshot.n_finished)
        if alert is not None:
            yield AlertKind.FAILURES, alert
