"""Removes objects that a study does not keep, by the same rule as on disk."""

from __future__ import annotations

import logging
from collections.abc import Callable

from optuna.trial import TrialState

from tuner.checkpoints.object_store.keys import StoreKeys
from tuner.checkpoints.object_store.orders import Answer, Work
from tuner.checkpoints.object_store.process import Transfers
from tuner.checkpoints.retention import RetentionRule, choose, rank
from tuner.devices.occupancy import size_text
from tuner.search.ended_trials import EndedTrials
from tuner.search.study import StudySearch
from tuner.store.records.upload_rows import UploadRecords

_log = logging.getLogger(__name__)

_EVERY_S = 10.0
_AT_ONCE = 8
_ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


class Removals:
    """Decides which checkpoints to remove, and removes objects that no row refers to.

    Args:
        transfers: The transfer process.
        records: Records of stored objects.
        keys: Names of objects.
        search: The study.
        rule: What is kept.
        say: Shows a message to the user.
    """

    def __init__(
        self,
        transfers: Transfers,
        records: UploadRecords,
        keys: StoreKeys,
        search: StudySearch,
        rule: RetentionRule,
        say: Callable[[str], None],
    ) -> None:
        self._transfers = transfers
        self._records = records
        self._keys = keys
        self._search = search
        self._rule = rule
        self._say = say
        self._ended = EndedTrials(search.study)
        self._looked_at_s: float | None = None
        self._n_ended = -1
        #: By id of the request.
        self._sent: dict[int, str] = {}
        #: URIs that this dispatcher cannot remove.
        self._stuck: set[str] = set()
        self._removed: list[str] = []
        self._is_over = False

    @property
    def n_left(self) -> int:
        """Number of removals without a reply."""
        return len(self._sent)

    def poll(self, now_s: float, *, is_last: bool = False) -> None:
        """Checks for objects to remove, at intervals.

        Raises:
            Unavailable: If the database does not answer now.
        """
        for uri in list(self._removed):
            self._records.forget(uri)
            self._removed.remove(uri)
        is_due = self._looked_at_s is None or now_s - self._looked_at_s >= _EVERY_S
        if not (is_due or is_last) or self._search.unsaved():
            return
        self._looked_at_s = now_s
        self._apply_rule()
        for uri in self._records.take_unwanted():
            if len(self._sent) < _AT_ONCE and uri not in self._stuck | {*self._sent.values()}:
                self._send(uri)

    def hear(self, answer: Answer) -> None:
        """Handles the reply to a request, if it is a removal."""
        uri = self._sent.pop(answer.id, None)
        if uri is None:
            return
        if not answer.problem:
            self._removed.append(uri)
            return
        _log.warning("%s is not removed: %s", uri, answer.problem)
        if not answer.is_temporary:
            self._stuck.add(uri)

    def _apply_rule(self) -> None:
        counts = self._search.counts.by_state()
        n_ended = sum(counts[state] for state in _ENDED)
        if self._rule.keeps_all or (n_ended == self._n_ended and self._rule.max_bytes is None):
            return
        removal = choose(rank(self._ended.read()), self._records.sizes(), self._rule)
        if removal.trials:
            self._records.remove(removal.trials)
        self._n_ended = n_ended
        if removal.over_bytes and not self._is_over:
            self._say(
                f"Checkpoints in {self._keys.address.url} take {size_text(removal.over_bytes)} "
                f"more than checkpoints.max_disk ({size_text(self._rule.max_bytes or 0)}), though "
                "all that may go is gone. Raise max_disk, or keep fewer of each "
                "(checkpoints.newest)."
            )
        self._is_over = removal.over_bytes > 0

    def _send(self, uri: str) -> None:
        try:
            key = self._keys.address.key_of(uri)
        except ValueError:
            self._stuck.add(uri)  # The study file has named another bucket before.
            return
        self._sent[self._transfers.send(Work.DELETE, key)] = uri
