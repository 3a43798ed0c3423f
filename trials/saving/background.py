"""One piece of work at a time in a thread, while training continues."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Background:
    """Runs work sequentially in a thread; the next call raises its error."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._future: Future[object] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether there is a result that was not read yet."""
        return self._future is not None

    def begin(self, work: Callable[[], object]) -> None:
        """Starts work, once the work before has ended; raises its error."""
        self.wait()
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="save-checkpoint")
        self._future = self._executor.submit(work)

    def wait(self) -> None:
        """Waits until the work has ended. Raises its error."""
        if (error := self.settle()) is not None:
            raise error

    def settle(self) -> BaseException | None:
        """Waits for the end; returns the error, once."""
        if self._future is None:
            return None
        # A signal that interrupts the wait leaves the work to be waited for again.
        error = self._future.exception()
        self._future = None
        return error
