"""Queue of notices to the user."""

from __future__ import annotations

from collections.abc import Callable

from tuner.dispatch.notices import Notice, Said, Snapshot, View


class NoticeQueue:
    """Holds notices back until the database has recorded their content.

    Args:
        view: Shows notices.
        started_at_s: When the dispatcher started (monotonic seconds).
    """

    def __init__(self, view: View, started_at_s: float) -> None:
        self._view = view
        self._notices: list[Notice] = []
        self._shown_at_s = started_at_s

    @property
    def has_news(self) -> bool:
        """Whether notices are queued."""
        return bool(self._notices)

    def say(self, text: str) -> None:
        """Queues a message about the whole study that does not wait for the database."""
        self._notices.append(Said(text=text))

    def add(self, notice: Notice) -> None:
        """Queues a notice that is shown once its content is recorded."""
        self._notices.append(notice)

    def tell(
        self,
        now_s: float,
        take: Callable[[], Snapshot],
        *,
        is_written: bool,
        is_last: bool = False,
    ) -> None:
        """Shows queued notices, and progress at the view's refresh interval.

        Args:
            now_s: The current monotonic time in seconds.
            take: Takes a snapshot of the study.
            is_written: Whether the database has recorded all events.
            is_last: Whether this is the last call.
        """
        kept: list[Notice] = []
        for notice in self._notices:
            if is_written or isinstance(notice, Said):
                self._view.show(notice)
            else:
                kept.append(notice)
        self._notices = kept
        if is_last or now_s - self._shown_at_s >= self._view.refresh_every_s:
            self._shown_at_s = now_s
            self._view.refresh(take())
