"""The object store of a start: checked before anything runs, then shared by all dispatchers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tuner.checkpoints.object_store.address import StoreAddress
from tuner.checkpoints.object_store.keys import StoreKeys
from tuner.checkpoints.object_store.orders import Answer, Work
from tuner.checkpoints.object_store.process import Transfers
from tuner.checkpoints.paths import StudyFiles
from tuner.checkpoints.retention import RetentionRule
from tuner.config import StudyConfig
from tuner.config.machine_checks import STORE_KEY
from tuner.dispatch.object_store.store import ObjectStore
from tuner.errors import ConfigError
from tuner.host.clock import Clock
from tuner.launch.protocols import Guard
from tuner.search.study import StudySearch
from tuner.store.records.recorder import Recorder

#: Object below the prefix that is written at each start, to check access.
_PROBE = "tuner-access-check.txt"
_PROBE_TEXT = "Written by the tuner to check access. It can be deleted.\n"
#: Seconds; a store that has not replied by then is retried while trials run.
_PROBE_S = 20.0
_POLL_S = 0.2


@contextmanager
def open_transfers(
    config: StudyConfig, guard: Guard, say: Callable[[str], None]
) -> Iterator[Transfers | None]:
    """Starts the transfer process, and checks that the store accepts objects.

    Args:
        config: The study.
        guard: Ends the process if the dispatcher dies.
        say: Shows a message to the user.

    Raises:
        ConfigError: If the bucket does not exist, or refuses access.
    """
    address = config.checkpoints.store
    if address is None:
        yield None
        return
    files = StudyFiles(folder=config.home, study=config.study)
    transfers = Transfers(address, files.uploads, files.uploads_log, guard)
    try:
        answer = _probe(transfers, address)
        if answer is not None and answer.problem and not answer.is_temporary:
            raise ConfigError(answer.problem, file=config.file, key=STORE_KEY)
        if answer is None or answer.problem:
            why = f"{address.url} does not answer" if answer is None else answer.problem
            say(f"store: {why}; uploads begin as soon as it does. Log: {files.uploads_log}")
        else:
            say(f"store: checkpoints and logs are uploaded to {address.url}")
        yield transfers
    finally:
        transfers.close()


def object_store_of(
    config: StudyConfig,
    transfers: Transfers | None,
    *,
    files: StudyFiles,
    search: StudySearch,
    recorder: Recorder,
    rule: RetentionRule,
    clock: Clock,
) -> ObjectStore | None:
    """The object store for one dispatcher; None if the study has none."""
    address = config.checkpoints.store
    if address is None or transfers is None:
        return None
    return ObjectStore(
        transfers,
        StoreKeys(address=address, files=files, study_id=search.key.id),
        files=files,
        recorder=recorder,
        search=search,
        rule=rule,
        n_newest=config.checkpoints.newest,
        clock=clock,
    )


def _probe(transfers: Transfers, address: StoreAddress) -> Answer | None:
    """The reply of the store; None if it does not reply in time."""
    key = f"{address.prefix}/{_PROBE}" if address.prefix else _PROBE
    order = transfers.send(Work.CHECK, key, _PROBE_TEXT)
    give_up_at_s = time.monotonic() + _PROBE_S
    while time.monotonic() < give_up_at_s:
        transfers.wait(_POLL_S)
        for answer in transfers.take():
            if answer.id == order:
                return answer
    return None
