"""The dashboard beside optuna-dashboard, on the same database, in the same call.

    python -m benchmarks.dashboard --keep FOLDER

Needs Playwright, Debian's Chromium and `pip install optuna-dashboard`. See docs/benchmarks.md.
"""

import argparse
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.common.machine import package_versions
from benchmarks.common.results import write_json
from benchmarks.dashboard import browser, refresh
from benchmarks.database.stored import kept_study

_PACKAGES = ("tuner", "streamlit", "plotly", "optuna", "optuna-dashboard", "playwright")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--reports", type=int, default=100, help="of each trial")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=float, default=120, help="seconds for a page to be seen")
    parser.add_argument("--keep", type=Path, help="a folder where the database stays")
    parser.add_argument("--alone", action="store_true", help="without optuna-dashboard")
    parser.add_argument(
        "--optuna-dashboard",
        default=shutil.which("optuna-dashboard", path=str(Path(sys.executable).parent)),
    )
    parser.add_argument("--output", type=Path, default=Path("benchmark-dashboard.json"))
    return parser.parse_args()


def main() -> None:
    args = _arguments()
    if args.optuna_dashboard is None and not args.alone:
        sys.exit("There is no optuna-dashboard: pip install optuna-dashboard, or use --alone")
    with (
        kept_study(args.keep, args.trials, args.reports) as url,
        tempfile.TemporaryDirectory(prefix="bench-dashboard-") as made,
    ):
        path = Path(url.removeprefix("sqlite:///"))
        peer = None if args.alone else args.optuna_dashboard
        found = browser.pages(url, path, peer)
        paints = [browser.measure(page, args.repeats, args.limit) for page in found]
        refreshes = refresh.measure(path, Path(made), args.repeats)
    print(f"{browser.table(paints)}\n\n{refresh.table(refreshes)}")
    figures = {
        "trials": args.trials,
        "reports": args.reports,
        "paints": [asdict(each) for each in paints],
        "refreshes": [asdict(each) for each in refreshes],
    }
    versions = package_versions(Path(sys.executable), _PACKAGES)
    write_json(args.output, packages=versions, figures=figures)


if __name__ == "__main__":
    main()
