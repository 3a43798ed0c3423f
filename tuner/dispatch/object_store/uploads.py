"""Queue of uploads: the newest checkpoint of each trial, then the logs of ended attempts.

The queue is in memory. After a crash, the next start finds in the database the checkpoints that
were saved on this host and never acknowledged.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from tuner.checkpoints.object_store.keys import StoreKeys
from tuner.checkpoints.object_store.orders import Answer, Work
from tuner.checkpoints.object_store.process import Transfers
from tuner.checkpoints.paths import StudyFiles
from tuner.checkpoints.scan import SavedState, look_at
from tuner.domain.attempt import Attempt
from tuner.store.records.upload_rows import NewUpload, StoredUpload, UploadRecords
from tuner.store.schema.models import UploadKind

_log = logging.getLogger(__name__)

_AT_ONCE = 2
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 15.0
#: Attempts to read a file on this disk.
_N_TRIES = 3

#: Inode, mtime and size; equal for two names of one file.
Identity = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadJob:
    """A checkpoint or log that is not in a store yet."""

    trial_id: int
    attempt: int
    kind: UploadKind
    path: Path
    key: str
    step: int
    size_bytes: int
    saved_at: datetime
    written_at_ns: int
    #: None for a log.
    identity: Identity | None = None
    n_failed: int = 0

    def recorded_as(self, uri: str) -> NewUpload:
        """The database record of the upload."""
        stored = StoredUpload(
            step=self.step,
            name=self.path.name,
            uri=uri,
            size_bytes=self.size_bytes,
            saved_at=self.saved_at,
        )
        return NewUpload(
            trial_id=self.trial_id, attempt=self.attempt, kind=self.kind, stored=stored
        )


class Uploads:
    """Uploads the checkpoints and logs of one dispatcher.

    Args:
        transfers: The transfer process.
        records: Records of uploaded objects.
        keys: Names of objects.
        n_newest: Number of checkpoints kept per trial.
        say: Shows a message to the user.
    """

    def __init__(
        self,
        transfers: Transfers,
        records: UploadRecords,
        keys: StoreKeys,
        n_newest: int,
        say: Callable[[str], None],
    ) -> None:
        self._transfers = transfers
        self._records = records
        self._keys = keys
        self._n_newest = n_newest
        self._say = say
        #: By trial: the newest checkpoint that is not sent.
        self._states: dict[int, UploadJob] = {}
        self._logs: deque[UploadJob] = deque()
        #: By id of the request.
        self._sent: dict[int, UploadJob] = {}
        #: Acknowledged but not recorded in the database yet.
        self._acknowledged: list[tuple[UploadJob, str]] = []
        #: By trial: names and times of the checkpoints in the store.
        self._known: dict[int, set[tuple[str, datetime]]] = {}
        self._uris: dict[Identity, str] = {}
        self._pause_s = _FIRST_PAUSE_S
        self._again_at_s = 0.0
        self._has_problem = False

    @property
    def n_left(self) -> int:
        """Number of files that are not both acknowledged and recorded."""
        n_queued = len(self._states) + len(self._logs)
        return n_queued + len(self._sent) + len(self._acknowledged)

    @property
    def n_states_left(self) -> int:
        """Number of checkpoints among them."""
        sent = (job.kind is UploadKind.CHECKPOINT for job in self._sent.values())
        done = (job.kind is UploadKind.CHECKPOINT for job, _ in self._acknowledged)
        return len(self._states) + sum(sent) + sum(done)

    def offer(self, attempt: Attempt, state: SavedState) -> None:
        """Queues a checkpoint found on disk; replaces an older queued one of the trial."""
        self._offer(attempt.trial_id, attempt.trial_number, attempt.number, state)

    def offer_again(self, host: str, files: StudyFiles) -> None:
        """Queues what an earlier start on this host saved and never had acknowledged.

        Raises:
            Unavailable: If the database does not answer now.
        """
        for each in self._records.unsent(host):
            path = files.checkpoints(each.trial_number) / Path(each.path).name
            try:
                state = look_at(path)
            except OSError:
                continue
            if state is not None:
                self._offer(each.trial_id, each.trial_number, each.attempt, state)

    def offer_logs(self, attempt: Attempt, files: StudyFiles) -> None:
        """Queues the logs of an ended attempt, which no longer change."""
        for rank in files.ranks_of(attempt.trial_number, attempt.number):
            path = files.log(attempt.trial_number, attempt.number, rank)
            try:
                stat = path.stat()
            except OSError:
                continue
            self._logs.append(
                UploadJob(
                    trial_id=attempt.trial_id,
                    attempt=attempt.number,
                    kind=UploadKind.LOG,
                    path=path,
                    key=self._keys.log(attempt.trial_number, attempt.number, path.name),
                    step=0,
                    size_bytes=stat.st_size,
                    saved_at=datetime.fromtimestamp(stat.st_mtime, UTC),
                    written_at_ns=0,
                )
            )

    def poll(self, now_s: float) -> None:
        """Records acknowledged uploads, and sends the next ones.

        Raises:
            Unavailable: If the database does not answer now; then nothing is lost.
        """
        self._record()
        while len(self._sent) < _AT_ONCE and now_s >= self._again_at_s:
            job = self._next()
            if job is None:
                return
            order = self._transfers.send(
                Work.PUT,
                job.key,
                job.path,
                written_at_ns=job.written_at_ns,
                size_bytes=job.size_bytes,
            )
            self._sent[order] = job

    def hear(self, answer: Answer, now_s: float) -> None:
        """Handles the reply to a request, if it is an upload."""
        job = self._sent.pop(answer.id, None)
        if job is None or answer.is_gone:
            return
        if answer.problem:
            self._put_back(job, answer, now_s)
            return
        self._pause_s = _FIRST_PAUSE_S
        if self._has_problem:
            self._has_problem = False
            self._say(f"Uploads to {self._keys.address.url} succeed again.")
        self._acknowledged.append((job, self._keys.address.uri_of(answer.key)))

    def _offer(self, trial_id: int, trial_number: int, attempt: int, state: SavedState) -> None:
        waiting = self._states.get(trial_id)
        if waiting is not None and waiting.saved_at >= state.saved_at:
            return
        path = Path(state.path)
        self._states[trial_id] = UploadJob(
            trial_id=trial_id,
            attempt=attempt,
            kind=UploadKind.CHECKPOINT,
            path=path,
            key=self._keys.checkpoint(trial_number, attempt, path.name, state.written_at_ns),
            step=state.step,
            size_bytes=state.size_bytes,
            saved_at=state.saved_at,
            written_at_ns=state.written_at_ns,
            identity=(state.inode, state.written_at_ns, state.size_bytes),
        )

    def _next(self) -> UploadJob | None:
        """The checkpoint that has waited longest; else a log."""
        under_way = {job.identity for job in self._sent.values()}
        for trial_id, job in list(self._states.items()):
            if (job.path.name, job.saved_at) in self._known_of(trial_id):
                del self._states[trial_id]
            elif job.identity in under_way:
                continue  # The same file under another name.
            elif job.identity is not None and job.identity in self._uris:
                del self._states[trial_id]
                self._refer(job, self._uris[job.identity])
            else:
                return self._states.pop(trial_id)
        return self._logs.popleft() if self._logs else None

    def _known_of(self, trial_id: int) -> set[tuple[str, datetime]]:
        if trial_id not in self._known:
            stored = self._records.of_trial(trial_id)
            self._known[trial_id] = {(each.name, each.saved_at) for each in stored}
        return self._known[trial_id]

    def _refer(self, job: UploadJob, uri: str) -> None:
        """Records a second row for an object whose content the store already has."""
        if self._records.refer(job.recorded_as(uri)):
            self._note_known(job)
            return
        # It is to be removed, as its own trial has newer ones.
        if job.identity is not None:
            del self._uris[job.identity]
        self._states[job.trial_id] = job

    def _record(self) -> None:
        if not self._acknowledged:
            return
        done = list(self._acknowledged)
        self._records.add([job.recorded_as(uri) for job, uri in done])
        del self._acknowledged[: len(done)]
        trials = set()
        for job, uri in done:
            if job.identity is not None:
                self._note_known(job)
                self._uris[job.identity] = uri
                trials.add(job.trial_id)
        if trials:
            self._records.rotate(trials, self._n_newest)

    def _note_known(self, job: UploadJob) -> None:
        self._known.setdefault(job.trial_id, set()).add((job.path.name, job.saved_at))

    def _put_back(self, job: UploadJob, answer: Answer, now_s: float) -> None:
        _log.warning("%s is not uploaded: %s", job.path, answer.problem)
        self._again_at_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        if not self._has_problem:
            self._has_problem = True
            self._say(
                f"Checkpoints are not uploaded now: checkpoints.store {answer.problem}. "
                "Training continues, and uploads are tried again."
            )
        is_of_disk = not answer.is_temporary and "Error: " in answer.problem
        job = replace(job, n_failed=job.n_failed + is_of_disk)
        if job.n_failed >= _N_TRIES:
            return
        if job.kind is UploadKind.LOG:
            self._logs.append(job)
        elif job.trial_id not in self._states:
            self._states[job.trial_id] = job
