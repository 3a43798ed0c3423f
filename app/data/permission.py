"""Permission to send commands from a page.

Without a token or named users who log in (OpenID Connect,
https://docs.streamlit.io/develop/concepts/connections/authentication), the dashboard is read-only.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Mapping

from tuner.monitoring.dashboard_process import TOKEN_VARIABLE, USERS_VARIABLE

#: Clients that are remembered; the oldest are forgotten.
_MAX_CLIENTS = 10_000
#: Wrong tokens of one client until it may not try for a while.
_MAX_WRONG = 5
_WHILE_S = 60.0


#: Sessions that are remembered, and for how long a ticket counts.
_MAX_SESSIONS = 1_000
_TICKET_S = 60.0


class ControlSessions:
    """Sessions of browsers with a valid token, each with a random name of 256 bits."""

    def __init__(self) -> None:
        self._tickets: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._who: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def issue(self, who: str, now_s: float | None = None) -> str:
        """Returns a ticket for a user who entered the token; valid once, for one minute."""
        ticket = secrets.token_urlsafe(32)
        with self._lock:
            self._tickets[ticket] = (who, time.monotonic() if now_s is None else now_s)
            while len(self._tickets) > _MAX_SESSIONS:
                self._tickets.popitem(last=False)
        return ticket

    def redeem(self, ticket: str, now_s: float | None = None) -> str | None:
        """The name of a new session; None for a ticket that does not count."""
        at = time.monotonic() if now_s is None else now_s
        with self._lock:
            who, issued_s = self._tickets.pop(ticket, ("", at - 2 * _TICKET_S))
            if at - issued_s > _TICKET_S:
                return None
            session = secrets.token_urlsafe(32)
            self._who[session] = who
            while len(self._who) > _MAX_SESSIONS:
                self._who.popitem(last=False)
            return session

    def who(self, session: str | None) -> str | None:
        """The user who started a session; None if unknown."""
        return self._who.get(session) if session else None

    def end(self, session: str | None) -> None:
        """A session counts no more."""
        with self._lock:
            self._who.pop(session or "", None)


class Doorkeeper:
    """Checks tokens. One per process, so that wrong guesses from all browsers count together.

    Args:
        environ: The token, and the users who may log in.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._token = environ.get(TOKEN_VARIABLE, "").encode()
        users = environ.get(USERS_VARIABLE, "").split(",")
        self._users = frozenset(each.strip().lower() for each in users if each.strip())
        self._wrong_at: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def has_token(self) -> bool:
        return bool(self._token)

    @property
    def has_users(self) -> bool:
        return bool(self._users)

    def knows(self, email: str | None) -> bool:
        """Whether a logged-in user may send commands."""
        return email is not None and email.lower() in self._users

    def admits(self, told: str, client: str, now_s: float | None = None) -> bool:
        """Whether a token is right, in constant time.

        Args:
            told: The entered token.
            client: Its origin, such as an address: wrong tokens lock out this client only.
            now_s: Monotonic time in seconds.
        """
        at = time.monotonic() if now_s is None else now_s
        with self._lock:
            wrong_at = self._wrong_at.get(client, deque(maxlen=_MAX_WRONG))
            is_closed = len(wrong_at) == _MAX_WRONG and at - wrong_at[0] < _WHILE_S
            is_right = hmac.compare_digest(told.encode(), self._token) and self.has_token
            if is_closed:
                return False
            if not is_right:
                wrong_at.append(at)
                self._wrong_at[client] = wrong_at
                self._wrong_at.move_to_end(client)
                while len(self._wrong_at) > _MAX_CLIENTS:
                    self._wrong_at.popitem(last=False)
            return is_right
