"""What the dispatcher has to tell people, until it may be told."""

from __future__ import annotations

from collections.abc import Callable

from tuner.dispatch.notices import Notice, Said, Snapshot, View


class NoticeQueue:
    """Keeps notices back until the database knows what they say.

    Args:
        view: Who watches.
        started_at_s: On the monotonic clock.
    """

    def __init__(self, view: View, started_at_s: float) -> None:
        self._view = view
        self._notices: list[Notice] = []
        self._shown_at_s = started_at_s

    @property
    def has_news(self) -> bool:
        """Whether something is to be told."""
        return bool(self._notices)

    def say(self, text: str) -> None:
        """Something that concerns the whole study, and is no matter of the database."""
        self._notices.append(Said(text=text))

    def add(self, notice: Notice) -> None:
        """Something that happened, and is told once it is written."""
        self._notices.append(notice)

    def tell(
        self,
        now_s: float,
        take: Callable[[], Snapshot],
        *,
        is_written: bool,
        is_last: bool = False,
    ) -> None:
        """Shows what may be told, and now and then how everything stands.

        Args:
            now_s: The present, on the monotonic clock.
            take: Finds out how everything stands.
            is_written: Whether the database knows of all that happened.
            is_last: Whether this dispatcher tells nothing after this.
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
