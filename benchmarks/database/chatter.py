"""Plays workers that report and wait for the verdict, many in one process and as cheaply as can be.

    python -m benchmarks.database.chatter FD REPORTS

Each line on FD is `attempt token address`: a worker to play. Once it has ended, its attempt is
written back. Every report is a line that was made before, and nothing of the tuner is imported:
what this takes is taken from the dispatcher that is measured.
"""

import json
import os
import select
import socket
import sys

_CHUNK = 65536


class Worker:
    """One connection to the dispatcher.

    Args:
        attempt_id: Whom it speaks for.
        token: Shows that it may.
        address: Of the dispatcher's channel.
    """

    def __init__(self, attempt_id: str, token: str, address: str) -> None:
        self.attempt_id = attempt_id
        self.step = 1
        own = f'{{"attempt_id":"{attempt_id}",'.encode()
        self.report = b'["Report",' + own
        self._finished = b'["Finished",' + own
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(address)
        more = f'"token":"{token}","pid":{os.getpid()},"is_worker":true,"rank":0}}]\n'
        self.socket.sendall(b'["Hello",' + own + more.encode())

    def finish(self, *, is_pruned: bool) -> None:
        said = {
            "outcome": "pruned" if is_pruned else "completed",
            "values": {"loss": 1 / self.step - 1},
        }
        self.socket.sendall(self._finished + json.dumps(said)[1:].encode() + b"]\n")
        self.socket.close()


class Chatter:
    """All workers of this process.

    Args:
        control: Where workers to play come from.
        n_reports: Of each.
    """

    def __init__(self, control: socket.socket, n_reports: int) -> None:
        self._control = control
        # As `tuner.domain.messages.encode` writes a report, from its step on.
        self._rests = [
            f'"step":{step},"values":{{"loss":{1 / step - 1!r}}},"metrics":{{}}}}]\n'.encode()
            for step in range(1, n_reports + 1)
        ]
        self._workers: dict[int, Worker] = {}
        self._poll = select.epoll()
        self._poll.register(control, select.EPOLLIN)

    def run(self) -> None:
        """Until the other end of the control is closed, or the dispatcher is gone."""
        while True:
            for fd, _ in self._poll.poll():
                if fd != self._control.fileno():
                    self._hear(self._workers[fd])
                elif not self._begin():
                    return

    def _begin(self) -> bool:
        lines = self._control.recv(_CHUNK)
        while lines and not lines.endswith(b"\n"):
            lines += self._control.recv(_CHUNK)
        for line in lines.decode().splitlines():
            worker = Worker(*line.split(" "))
            self._workers[worker.socket.fileno()] = worker
            self._poll.register(worker.socket, select.EPOLLIN)
            worker.socket.sendall(worker.report + self._rests[0])
        return bool(lines)

    def _hear(self, worker: Worker) -> None:
        verdict = worker.socket.recv(_CHUNK)
        goes_on = b'"continue"' in verdict
        if goes_on and worker.step < len(self._rests):
            worker.socket.sendall(worker.report + self._rests[worker.step])
            worker.step += 1
            return
        fd = worker.socket.fileno()
        self._poll.unregister(fd)
        del self._workers[fd]
        worker.finish(is_pruned=not goes_on)
        self._control.sendall(worker.attempt_id.encode() + b"\n")


def main() -> int:
    control = socket.socket(fileno=int(sys.argv[1]))
    try:
        Chatter(control, int(sys.argv[2])).run()
    except (ConnectionError, BrokenPipeError):
        return 0  # The dispatcher has ended: enough was measured.
    return 0


if __name__ == "__main__":
    sys.exit(main())
