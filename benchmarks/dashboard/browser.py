"""How long a real browser takes until somebody sees how a study converges."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from playwright.sync_api import TimeoutError, sync_playwright

FLAGS = ("no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking")
_LIMIT_S = 600.0
_POLL_S = 0.1
#: Notes when an element is there first, by the browser's own clock from the start of navigation.
WATCH = """
selector => {
  const look = () => {
    if (window.seenAt || !document.querySelector(selector)) return;
    window.seenAt = performance.now();
    requestAnimationFrame(() => setTimeout(() => { window.paintedAt = performance.now(); }));
  };
  new MutationObserver(look).observe(document, {
    subtree: true, childList: true, attributes: true });
  look();
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One program's page of how a study converges."""

    system: str
    command: tuple[str, ...]
    #: With {port}.
    address: str
    #: What is there when the points can be seen.
    painted: str
    #: What is there when the page can be worked with.
    ready: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paint:
    """Milliseconds from the start of navigation, each time a new browser."""

    system: str
    #: The first browser after the server has begun to answer.
    first_ms: float
    #: Later ones.
    median_ms: float
    ready_ms: float
    n_repeats: int
    load_before: float
    limit_s: float


def tuner_dashboard(path: Path) -> tuple[str, ...]:
    """Ours, on an SQLite file, with a place for the port."""
    tuner = "import sys; sys.argv[0] = 'tuner'; from tuner.cli.main import main; main()"
    return (sys.executable, "-c", tuner, "dashboard", str(path), "--port", "{port}")


def pages(url: str, path: Path, optuna_dashboard: str | None) -> list[Page]:
    """
    Args:
        url: Of the database.
        path: The same, as a file.
        optuna_dashboard: Its program; None for ours alone.
    """
    ours = Page(
        system="tuner dashboard",
        command=tuner_dashboard(path),
        address="http://127.0.0.1:{port}/convergence",
        painted="[data-drawn]",
        ready='[data-drawn="plotly"]',
    )
    if optuna_dashboard is None:
        return [ours]
    points = ".js-plotly-plot .main-svg .point, .js-plotly-plot canvas"
    peer = Page(
        system="optuna-dashboard",
        command=(optuna_dashboard, url, "--port", "{port}", "--host", "127.0.0.1"),
        address="http://127.0.0.1:{port}/dashboard/studies/1",
        painted=points,
        ready=points,
    )
    return [ours, peer]


def measure(page: Page, n_repeats: int, limit_s: float) -> Paint:
    """Starts the server, and opens the page in one new browser after the other."""
    load_before = os.getloadavg()[0]
    with served(page) as address:
        seen = [_visit(page, address, limit_s) for _ in range(n_repeats + 1)]
    return Paint(
        system=page.system,
        first_ms=seen[0][0],
        median_ms=median(painted for painted, _ in seen[1:]),
        ready_ms=median(ready for _, ready in seen[1:]),
        n_repeats=n_repeats,
        load_before=load_before,
        limit_s=limit_s,
    )


@contextmanager
def served(page: Page) -> Iterator[str]:
    """Starts a program, and gives the address of its page once it answers."""
    with started_server(page) as (address, _):
        yield address


@contextmanager
def started_server(page: Page) -> Iterator[tuple[str, int]]:
    """Starts a program, and gives the address of its page and its pid once it answers."""
    with socket.socket() as lent:
        lent.bind(("127.0.0.1", 0))
        port = lent.getsockname()[1]
    command = [word.replace("{port}", str(port)) for word in page.command]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_it_answers(port)
        yield page.address.replace("{port}", str(port)), server.pid
    finally:
        server.terminate()
        server.wait(30)


def _wait_until_it_answers(port: int) -> None:
    until = time.monotonic() + _LIMIT_S
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5):
                # Both read ahead, or import, for a while after they have begun to answer.
                time.sleep(3)
                return
        except (urllib.error.URLError, OSError):
            time.sleep(_POLL_S)
    raise TimeoutError(f"Nothing answers at port {port}.")


def _visit(page: Page, address: str, limit_s: float) -> tuple[float, float]:
    """Painted and ready, in ms; the limit where it took longer."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=[f"--{each}" for each in FLAGS]
        )
        shown = browser.new_page(viewport={"width": 1280, "height": 900})
        shown.set_default_timeout(limit_s * 1000)
        shown.add_init_script(f"({WATCH})({page.painted!r})")
        shown.goto(address, wait_until="commit")
        try:
            shown.wait_for_function("window.paintedAt > 0")
            painted = float(shown.evaluate("window.paintedAt"))
            shown.wait_for_selector(page.ready)
            ready = max(painted, float(shown.evaluate("performance.now()")))
        except TimeoutError:
            painted = ready = limit_s * 1000
        browser.close()
    return painted, ready


def table(paints: Sequence[Paint]) -> str:
    """Markdown."""
    lines = [
        "| page | first browser (ms) | later browsers, median (ms) | ready to zoom (ms) | load |",
        "|---|---|---|---|---|",
    ]
    for each in paints:
        lines.append(
            f"| {each.system} | {_ms(each.first_ms, each)} | {_ms(each.median_ms, each)} "
            f"| {_ms(each.ready_ms, each)} | {each.load_before:.1f} |"
        )
    return "\n".join(lines)


def _ms(figure: float, paint: Paint) -> str:
    limit_ms = paint.limit_s * 1000
    return f"> {limit_ms:.0f}" if figure >= limit_ms else f"{figure:.0f}"
