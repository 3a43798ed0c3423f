"""How long a browser takes until a page is seen first, and until it shows what a click changes.

    python -m benchmarks.dashboard.every_page --keep FOLDER --trials 10000 --reports 50

Needs Playwright and Debian's Chromium. See docs/benchmarks.md.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

import psutil
from playwright.sync_api import Page as Tab
from playwright.sync_api import TimeoutError, sync_playwright

from benchmarks.common.machine import package_versions, this_machine
from benchmarks.common.results import write_json
from benchmarks.dashboard.big_study import (
    OTHER_STUDY,
    PARETO_STUDY,
    fill_long_study,
    fill_week,
    kept_database,
)
from benchmarks.dashboard.browser import FLAGS, WATCH, Page, started_server, tuner_dashboard
from benchmarks.dashboard.visits import TOKEN, Visit, visits, visits_of_a_week
from benchmarks.database.stored import STUDY

_PACKAGES = ("tuner", "streamlit", "plotly", "optuna", "playwright")
#: A page is quiet when its script has ended and nothing of it has changed for so long.
_QUIET_MS = 500
#: Notes the instant of the last change of the page, and of the end of the last task that kept the
#: browser from drawing it, by the browser's own clock.
_NOTE_CHANGES = """
() => {
  window.changedAt = performance.now();
  new MutationObserver(() => { window.changedAt = performance.now(); })
    .observe(document.querySelector('[data-testid="stMain"]'),
             {subtree: true, childList: true, attributes: true, characterData: true});
  new PerformanceObserver(list => {
    for (const each of list.getEntries())
      window.changedAt = Math.max(window.changedAt, each.startTime + each.duration);
  }).observe({type: "longtask"});
}
"""
_IS_QUIET = f"""
() => document.querySelector('[data-testid="stApp"]').dataset.testScriptState === 'notRunning'
  && performance.now() - window.changedAt > {_QUIET_MS}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Milliseconds until something is seen, and seconds of the server's processor."""

    page: str
    #: Empty for the first sight.
    step: str
    first_ms: float
    median_ms: float
    worst_ms: float
    server_cpu_s: float
    n_repeats: int
    load_before: float


def measure(
    path: Path, study: str, visits: Sequence[Visit], n_repeats: int, limit_s: float
) -> Iterator[Figure]:
    """Each page with a server of its own, so that no other has read the database for it."""
    with tempfile.NamedTemporaryFile("w", prefix="bench-token-") as token:
        token.write(f"{TOKEN}\n")
        token.flush()
        command = (*tuner_dashboard(path), "--study", study, "--token-file", token.name)
        for visit in visits:
            yield from _measure_one(visit, command, n_repeats, limit_s)


def _measure_one(
    visit: Visit, command: tuple[str, ...], n_repeats: int, limit_s: float
) -> Iterator[Figure]:
    load_before = os.getloadavg()[0]
    page = Page(
        system="tuner dashboard",
        command=command,
        address="http://127.0.0.1:{port}/" + visit.path,
        painted=visit.seen,
        ready=visit.seen,
    )
    runs = []
    with started_server(page) as (address, pid):
        for _ in range(n_repeats + 1):
            runs.append(_visit(visit, address, psutil.Process(pid), limit_s))
    for place, step in enumerate(["", *(name for name, _ in visit.steps)]):
        ms = [run[place][0] for run in runs]
        yield Figure(
            page=visit.name,
            step=step,
            first_ms=ms[0],
            median_ms=median(ms[1:]),
            worst_ms=max(ms[1:]),
            server_cpu_s=median(run[place][1] for run in runs[1:]),
            n_repeats=n_repeats,
            load_before=load_before,
        )


def _visit(
    visit: Visit, address: str, server: psutil.Process, limit_s: float
) -> list[tuple[float, float]]:
    """Of the first sight and of each step: milliseconds, and processor seconds of the server."""
    with _new_tab(limit_s) as tab:
        before_s = _cpu_s(server)
        tab.add_init_script(f"({WATCH})({visit.seen!r})")
        joint = "&" if "?" in address else "?"
        try:
            tab.goto(f"{address}{joint}live=false", wait_until="commit")
            tab.wait_for_function("window.paintedAt > 0")
            seen_ms = float(tab.evaluate("window.paintedAt"))
            tab.evaluate(_NOTE_CHANGES)
            tab.wait_for_function(_IS_QUIET)
        except TimeoutError:
            return [(limit_s * 1000, _cpu_s(server) - before_s)] * (len(visit.steps) + 1)
        found = [(seen_ms, _cpu_s(server) - before_s)]
        return found + [_step(tab, act, server, limit_s) for _, act in visit.steps]


def _step(
    tab: Tab, act: Callable[[Tab], None], server: psutil.Process, limit_s: float
) -> tuple[float, float]:
    before_s = _cpu_s(server)
    begun = float(tab.evaluate("performance.now()"))
    try:
        act(tab)
        tab.wait_for_function(f"window.changedAt > {begun}")
        tab.wait_for_function(_IS_QUIET)
    except TimeoutError:
        return limit_s * 1000, _cpu_s(server) - before_s
    return float(tab.evaluate("window.changedAt")) - begun, _cpu_s(server) - before_s


@contextmanager
def _new_tab(limit_s: float) -> Iterator[Tab]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=[f"--{each}" for each in FLAGS]
        )
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.set_default_timeout(limit_s * 1000)
        yield tab
        browser.close()


def _cpu_s(server: psutil.Process) -> float:
    """Of the process and all that it started."""
    times = [each.cpu_times() for each in (server, *server.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


def table(found: Sequence[Figure]) -> str:
    """Markdown."""
    lines = [
        "| page | what | first browser (ms) | median (ms) | worst (ms) | server's processor (s) |",
        "|---|---|---|---|---|---|",
    ]
    for each in found:
        lines.append(
            f"| {each.page} | {each.step or 'first sight'} | {each.first_ms:.0f} "
            f"| {each.median_ms:.0f} | {each.worst_ms:.0f} | {each.server_cpu_s:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard.every_page")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--reports", type=int, default=50, help="of each trial")
    parser.add_argument("--week", action="store_true", help="a week of 8 GPUs, not such a study")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=float, default=60, help="seconds for anything to be seen")
    parser.add_argument("--pages", nargs="*", help="by name; all if none is named")
    parser.add_argument("--keep", type=Path, help="a folder where the database stays")
    parser.add_argument("--output", type=Path, default=Path("benchmark-every-page.json"))
    args = parser.parse_args()
    if args.week:
        name, study, fill = "week", "week", fill_week
        every = visits_of_a_week(study)
    else:
        name, study = f"long-{args.trials}x{args.reports}", STUDY
        fill = partial(fill_long_study, n_trials=args.trials, n_reports=args.reports)
        every = visits(study, OTHER_STUDY, PARETO_STUDY, args.trials)
    wanted = [each for each in every if not args.pages or each.name in args.pages]
    print(f"{this_machine()}, load {os.getloadavg()[0]:.1f}", flush=True)
    with kept_database(args.keep, name, fill) as path:
        found = []
        for figure in measure(path, study, wanted, args.repeats, args.limit):
            print(table([figure]).splitlines()[-1], file=sys.stderr, flush=True)
            found.append(figure)
    print(f"\n{table(found)}")
    figures = {"study": name, "pages": [asdict(each) for each in found]}
    write_json(
        args.output,
        packages=package_versions(Path(sys.executable), _PACKAGES),
        figures=figures,
    )


if __name__ == "__main__":
    main()
