"""Static files of the first page load, served from memory.

Streamlit's page is a hundred small files, half of which it requests only after the first message.
Read from disk one by one, they take a third of the first second of a page; served from memory and
preloaded (`modulepreload`), a tenth.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import streamlit
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.app.library import LIBRARY_PATH, library_file

_STATIC = Path(streamlit.__file__).with_name("static")
_PREFIX = "/static/js/"
#: Files of which the pages consist, by the first words of their names; others are loaded on
#: request.
_EARLY = ("BidiComponent", "Metric", "Selectbox", "Checkbox", "ButtonGroup", "Block", "App")
#: Streamlit's program for `st.code`: a browser is busy with it for 0.2 s, with any highlighting.
_TEXT = "StreamlitSyntaxHighlighter."
_IMPORTED = re.compile(r'(?:from|import)\s*"\./([\w.~-]+\.js)"')
_KEEP = (b"cache-control", b"public, max-age=31536000, immutable")
#: Another site's page can't lay the dashboard's buttons under its own.
_FRAMES = (b"content-security-policy", b"frame-ancestors 'self'")
#: Redirect target of a login provider: no page, despite its name.
_CALLBACK = "/oauth2callback"
_FIRST_PAGE = "/studies"
#: Otherwise Streamlit searches its server below the address of the first page, where it is not: two
#: errors in the browser's console, and an additional round trip.
_WHERE = "<script>window.__streamlit = { BACKEND_BASE_URL: new URL('.', location).href };</script>"
#: Streamlit's "Stop" ends a page's script, not a study, and it greys out content that is refreshed
#: every two seconds. Its margins take half of a small screen.
_STYLE = """<style>
[data-testid="stStatusWidget"] { display: none !important; }
[data-testid="stMain"] { scrollbar-gutter: stable; }  /* A scroll bar would redraw each figure. */
[data-testid="stTable"] td { white-space: normal; overflow-wrap: anywhere; }
[data-testid="stMainBlockContainer"] { padding: 3.75rem clamp(1rem, 3vw, 3rem) 4rem !important; }
@media (hover: none) {  /* A table's buttons are always there, and would cover what is above it. */
  [data-testid="stElementContainer"]:has([data-testid="stDataFrame"]) { margin-top: 2.2rem; }
}
[data-stale="true"], details, summary { opacity: 1 !important; transition: none !important; }
</style>"""
#: Programs of later pages are read as soon as a page is there: that of figures first, unless the
#: page has one, and then that of blocks of text.
_EARLY_SCRIPTS = """<script>
let nDrawn = 0;  // A table comes half a second after its heading.
const whenIdle = window.requestIdleCallback ?? setTimeout;
const readText = () => whenIdle(() => import("{text}").catch(() => {{}}));
const early = setInterval(() => {{
  const src = new URL("{figures}", location.origin).href;
  const isThere = [...document.scripts].some((each) => each.src === src);
  const parts = ":is([data-testid=stHeading], [data-drawn=plotly])";
  nDrawn += Boolean(document.querySelector(`[data-test-script-state=notRunning] ${{parts}}`));
  if (nDrawn < 5) return;
  clearInterval(early);
  if (isThere) return readText();
  const script = document.createElement("script");
  script.onerror = () => script.remove();
  script.onload = readText;
  document.head.append(Object.assign(script, {{ src }}));
}}, 150);
</script>"""
_SCRIPT = (b"content-type", b"text/javascript; charset=utf-8")


class Assets:
    """Serves immutable files, and passes other requests to the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._page = _page_with_preloads()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, headers = self._found(scope)
        if body is None:
            await self._app(scope, receive, _without_frames(send))
            return
        headers = [*headers, (b"content-length", str(len(body)).encode()), _FRAMES]
        status = 200 if body else 307
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _found(self, scope: Scope) -> tuple[bytes | None, list[tuple[bytes, bytes]]]:
        if scope["type"] != "http" or scope["method"] != "GET":
            return None, []
        path = scope["path"]
        if path == LIBRARY_PATH:
            if b"gzip" in dict(scope["headers"]).get(b"accept-encoding", b""):
                return _packed_library(), [_SCRIPT, _KEEP, (b"content-encoding", b"gzip")]
            return library_file().read_bytes(), [_SCRIPT, _KEEP]
        if path.startswith(_PREFIX) and (script := _script(path.removeprefix(_PREFIX))):
            return script, [_SCRIPT, _KEEP]
        if path == _FIRST_PAGE:  # Streamlit's address of it is "/", and it knows no other.
            query = scope["query_string"]
            return b"", [(b"location", b"./" + (b"?" + query if query else b""))]
        if "." not in path and path.count("/") == 1 and path != _CALLBACK and self._page:
            html = (b"content-type", b"text/html; charset=utf-8")
            return self._page, [html, (b"cache-control", b"no-cache")]
        return None, []


def _without_frames(send: Send) -> Send:
    async def send_with_policy(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), _FRAMES]}
        await send(message)

    return send_with_policy


@cache
def _packed_library() -> bytes:
    # The lowest level: it takes 0.1 s, and leaves a third of the length.
    return gzip.compress(library_file().read_bytes(), compresslevel=1)


@cache
def _scripts() -> dict[str, Path]:
    return {path.name: path for path in (_STATIC / "static" / "js").glob("*.js")}


@cache
def _script(name: str) -> bytes | None:
    path = _scripts().get(name)
    return path.read_bytes() if path else None


def _page_with_preloads() -> bytes | None:
    page = _STATIC / "index.html"
    if not page.exists():
        return None
    text = page.read_text()
    links = [
        f'<link rel="modulepreload" crossorigin href=".{_PREFIX}{name}" />'
        for name in dict.fromkeys(_early())
        if name not in text
    ]
    of_text = next((name for name in _scripts() if name.startswith(_TEXT)), "")
    scripts = _EARLY_SCRIPTS.format(figures=LIBRARY_PATH, text=f".{_PREFIX}{of_text}")
    head = "\n".join([_WHERE, _STYLE, scripts, *links, "</head>"])
    return text.replace("</head>", head, 1).encode()


def _early() -> Iterator[str]:
    """These files, and their imports."""
    waiting = [name for name in _scripts() if name.split(".")[0] in _EARLY]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or (script := _script(name)) is None:
            continue
        seen.add(name)
        yield name
        waiting += _IMPORTED.findall(script.decode())
