"""The transfer process: uploads and downloads, so that no other process waits for the network.

It reads requests from standard input and exits when that closes, when the dispatcher ends in any
way: uploads that were not recorded are repeated by the next start. It ignores SIGTERM, because an
engine that reclaims a node sends it to every process; the dispatcher decides when it ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

from tuner.checkpoints.object_store import transfer
from tuner.checkpoints.object_store.address import StoreAddress
from tuner.checkpoints.object_store.bucket import Bucket, BucketError
from tuner.checkpoints.object_store.orders import Answer, Order, Work

#: Training has the processor first.
_NICENESS = 10
#: So many orders at once.
N_THREADS = 2


class Uploader:
    """Runs requests in threads.

    Args:
        address: Address of the store.
        links: Folder in which checkpoints are held while they are uploaded.
        answers: Receives replies.
    """

    def __init__(self, address: StoreAddress, links: Path, answers: BinaryIO) -> None:
        self._address = address
        self._links = links
        self._answers = answers
        self._bucket: Bucket | None = None
        self._lock = threading.Lock()
        self._orders: SimpleQueue[Order] = SimpleQueue()

    def run(self, lines: BinaryIO) -> None:
        """Works until the lines end."""
        for _ in range(N_THREADS):
            threading.Thread(target=self._work, daemon=True).start()
        for line in lines:
            self._orders.put(Order.from_line(line))

    def _work(self) -> None:
        while True:
            answer = self._answer(self._orders.get())
            with self._lock, suppress(OSError, ValueError):
                self._answers.write(answer.to_line())
                self._answers.flush()

    def _answer(self, order: Order) -> Answer:
        try:
            return self._carry_out(self._open(), order)
        except transfer.Gone:
            return Answer(id=order.id, is_gone=True)
        except BucketError as error:
            return Answer(id=order.id, problem=str(error), is_temporary=error.is_temporary)
        except (OSError, ValueError) as error:
            return Answer(id=order.id, problem=f"{type(error).__name__}: {error}"[:500])

    def _carry_out(self, bucket: Bucket, order: Order) -> Answer:
        key, size_bytes = order.key, order.size_bytes
        match order.work:
            case Work.CHECK:
                bucket.put(key, order.path.encode())
            case Work.PUT:
                source = Path(order.path)
                links = self._links / str(order.id)
                key = transfer.upload(bucket, source, key, links, order.written_at_ns)
            case Work.GET:
                transfer.download(bucket, key, Path(order.path), size_bytes)
            case Work.DELETE:
                transfer.delete(bucket, key)
        return Answer(id=order.id, key=key, size_bytes=size_bytes)

    def _open(self) -> Bucket:
        with self._lock:
            if self._bucket is None:
                self._bucket = Bucket(self._address)
            return self._bucket


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError):
        os.nice(_NICENESS)
    scheme, bucket, prefix, links, descriptor = sys.argv[1:]
    address = StoreAddress(scheme=scheme, bucket=bucket, prefix=prefix)
    with os.fdopen(int(descriptor), "wb") as answers:
        Uploader(address, Path(links), answers).run(sys.stdin.buffer)
        shutil.rmtree(links, ignore_errors=True)
        # Threads may be in the middle of a request whose result can no longer be recorded.
        os._exit(0)


if __name__ == "__main__":
    main()
