"""`python -m tuner.queue`: runs the studies of this user's queue on this machine, then ends."""

from __future__ import annotations

import os

from tuner.queue import service
from tuner.queue.entries import Queue, queue_folder
from tuner.queue.runner import Runner

if __name__ == "__main__":
    Runner(Queue(queue_folder(os.environ)), service.forget).run()
