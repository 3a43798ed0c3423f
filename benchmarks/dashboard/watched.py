"""Whether a study does less while people watch it: with five browsers open, and with none.

    python -m benchmarks.dashboard.watched --repeats 3

Needs Playwright and Debian's Chromium. The browsers take the cores of the machine that trains,
which those of people do not: what is measured is an upper bound. See docs/benchmarks.md.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

from playwright.sync_api import sync_playwright

from benchmarks.common.machine import package_versions, this_machine
from benchmarks.common.measures import Span
from benchmarks.common.processes import last_lines, started
from benchmarks.common.results import write_json
from benchmarks.common.systems import SYSTEMS
from benchmarks.common.workload import Workload, read_spans, write_folder
from benchmarks.dashboard.browser import FLAGS, Page, served, tuner_dashboard

_PACKAGES = ("tuner", "streamlit", "plotly", "optuna", "playwright")
_PAGES = ("convergence", "curves", "devices", "trials", "parameters")
_START_S = 120.0
_POLL_S = 0.2
#: For what starts the study or opens the pages to be over.
_SETTLE_S = 10.0
_MORE_TRIALS_THAN_END = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One study, of which a part is looked at."""

    n_browsers: int
    trials_per_s: float
    #: Pairs of trials that ended one after the other on the same slot.
    n_pairs: int
    load_before: float


def measure(args: argparse.Namespace) -> Iterator[Watched]:
    """In turn, so that what else the machine does meets both."""
    for _ in range(args.repeats):
        for n_browsers in (0, args.browsers):
            found = run_once(n_browsers, args)
            print(f"{n_browsers} browsers: {found.trials_per_s:.2f} trials/s", file=sys.stderr)
            yield found


def run_once(n_browsers: int, args: argparse.Namespace) -> Watched:
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bench-watched-") as made, ExitStack() as stack:
        folder = Path(made)
        workload = Workload(
            slots=args.slots, trials=_MORE_TRIALS_THAN_END, duration_s=args.duration
        )
        write_folder(folder, workload)
        command = [sys.executable, *SYSTEMS["tuner"].program]
        environment = SYSTEMS["tuner"].environment(folder)
        study = stack.enter_context(started(command, folder=folder, env=environment))
        _wait_until(lambda: bool(read_spans(folder)), "a trial has ended", folder)
        wait = _open_pages(stack, folder, n_browsers) if n_browsers else time.sleep
        wait(_SETTLE_S)
        began_ns = time.monotonic_ns()
        wait(args.seconds)
        until_ns = time.monotonic_ns()
        assert study.poll() is None, last_lines(folder)
        spans = [each for each in read_spans(folder) if began_ns <= each.end_ns < until_ns]
    between_s = seconds_between_ends(spans)
    return Watched(
        n_browsers=n_browsers,
        trials_per_s=args.slots / fmean(between_s),
        n_pairs=len(between_s),
        load_before=load_before,
    )


def seconds_between_ends(spans: Sequence[Span]) -> list[float]:
    """From one trial's end to the next one's on the same slot.

    Not the number of ends: eight slots that end together are in a time or not.
    """
    by_slot: dict[str | None, list[int]] = defaultdict(list)
    for span in spans:
        by_slot[span.slot].append(span.end_ns)
    return [
        (after - before) / 1e9
        for ends in by_slot.values()
        for before, after in pairwise(sorted(ends))
    ]


def _open_pages(stack: ExitStack, folder: Path, n_browsers: int) -> Callable[[float], None]:
    """Browsers with nothing in common, each on another page; gives a wait that lets them run."""
    dashboard = Page(
        system="tuner dashboard",
        command=tuner_dashboard(folder / "bench.db"),
        address="http://127.0.0.1:{port}",
        painted="",
        ready="",
    )
    address = stack.enter_context(served(dashboard))
    playwright = stack.enter_context(sync_playwright())
    pages = []
    for number in range(n_browsers):
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=[f"--{each}" for each in FLAGS]
        )
        stack.callback(browser.close)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(_START_S * 1000)
        page.goto(f"{address}/{_PAGES[number % len(_PAGES)]}")
        page.wait_for_selector('[data-testid="stHeading"]')
        pages.append(page)
    return lambda seconds: pages[0].wait_for_timeout(seconds * 1000)


def _wait_until(is_so: Callable[[], bool], what: str, folder: Path) -> None:
    give_up_at_s = time.monotonic() + _START_S
    while not is_so():
        if time.monotonic() > give_up_at_s:
            raise TimeoutError(f"Not so after {_START_S:g} s: {what}\n{last_lines(folder)}")
        time.sleep(_POLL_S)


def table(found: Sequence[Watched]) -> str:
    """Markdown: medians, and what remains with browsers open."""
    lines = ["| browsers | trials a second, median | range | of without |", "|---|---|---|---|"]
    alone = median(each.trials_per_s for each in found if not each.n_browsers)
    for n_browsers in sorted({each.n_browsers for each in found}):
        own = [each.trials_per_s for each in found if each.n_browsers == n_browsers]
        low, middle, high = min(own), median(own), max(own)
        share = f"{middle / alone:.3f}" if n_browsers else "1"
        lines.append(f"| {n_browsers} | {middle:.2f} | {low:.2f} to {high:.2f} | {share} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard.watched")
    parser.add_argument("--browsers", type=int, default=5)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--duration", type=float, default=2.0, help="seconds that a trial sleeps")
    parser.add_argument("--seconds", type=float, default=60.0, help="that are looked at")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("benchmark-watched.json"))
    args = parser.parse_args()
    found = list(measure(args))
    print(f"{this_machine()}\n\n{table(found)}")
    versions = package_versions(Path(sys.executable), _PACKAGES)
    write_json(args.output, packages=versions, figures=[asdict(each) for each in found])


if __name__ == "__main__":
    main()
