"""Keeps a browser's permission over reloads and new tabs after it has sent the token.

Streamlit's pages cannot set a cookie, so the page loads an image with a single-use ticket, and the
response sets a cookie that scripts cannot read and that other sites' pages do not send.
"""

from __future__ import annotations

from functools import cache
from http.cookies import SimpleCookie
from urllib.parse import parse_qs, urlencode

from starlette.types import ASGIApp, Receive, Scope, Send

from tuner.app.data.permission import ControlSessions

_PATH = "/control-session"
_TICKET = "ticket"


@cache
def sessions() -> ControlSessions:
    """The sessions of this server."""
    return ControlSessions()


def cookie_name(port: int) -> str:
    """Cookies belong to a host: dashboards on different ports have different names."""
    return f"tuner-control-{port}"


def address_of(ticket: str) -> str:
    """The relative URL that the page loads."""
    return f".{_PATH}?{urlencode({_TICKET: ticket})}"


class ControlCookie:
    """Answers tickets with a cookie, and leaves the rest to the application.

    Args:
        app: The application.
        port: The server's.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._name = cookie_name(port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != _PATH:
            await self._app(scope, receive, send)
            return
        words = parse_qs(scope["query_string"].decode("latin-1"))
        session = sessions().redeem(next(iter(words.get(_TICKET, [])), ""))
        headers = [(b"cache-control", b"no-store")]
        if session is not None:
            headers.append((b"set-cookie", self._cookie(session, scope["scheme"]).encode()))
        status = 403 if session is None else 204
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def _cookie(self, session: str, scheme: str) -> str:
        """A session cookie, which ends with the browser's session."""
        cookie: SimpleCookie = SimpleCookie({self._name: session})
        morsel = cookie[self._name]
        morsel["httponly"], morsel["samesite"], morsel["path"] = True, "Strict", "/"
        if scheme == "https":
            morsel["secure"] = True
        return morsel.OutputString()
