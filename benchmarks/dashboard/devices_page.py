"""How long the dashboard's page of devices takes on a week of a machine's GPUs.

    python -m benchmarks.dashboard.devices_page --gpus 8 --days 7 --trial 600

Fills an SQLite file, then has Streamlit run the page as a browser's visit does, without the
browser: the first time with everything imported and nothing read, and again as a live refresh does.
"""

import argparse
import importlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil
from streamlit.testing.v1 import AppTest

from benchmarks.common.machine import package_versions, this_machine
from benchmarks.common.results import write_json
from tests.integration.app.devices.device_week import add_week
from tuner.monitoring.dashboard_process import DATABASE_VARIABLE
from tuner.store.connection.database import open_database

_SCRIPT = "from tuner.app.views import devices, shell\nshell.sidebar()\ndevices.page()"
#: What Streamlit and Plotly import when they are used first.
_IMPORTS = """
import plotly.graph_objects as go
import streamlit as st
st.plotly_chart(go.Figure([go.Bar(x=[1], y=[1]), go.Heatmap(z=[[1]])]))
st.dataframe({"a": [1]})
"""
_PACKAGES = ("streamlit", "plotly", "numpy", "sqlalchemy")
_REFRESHES = 7


@dataclass(frozen=True, kw_only=True)
class Times:
    """Of the server, wall and processor time."""

    gpus: int
    days: float
    trials: int
    database_bytes: int
    #: By a server that has imported everything, and has read nothing.
    first_s: float
    first_processor_s: float
    #: Medians.
    refresh_s: float
    refresh_processor_s: float


def measure(n_gpus: int, days: float, trial_s: float) -> Times:
    folder = Path(tempfile.mkdtemp(prefix="bench-devices-"))
    url = f"sqlite:///{folder}/study.db"
    open_database(url).close()
    add_week(url, datetime.now(UTC), n_devices=n_gpus, days=days, trial_s=trial_s)
    os.environ[DATABASE_VARIABLE] = url
    importlib.import_module("tuner.app.views.devices")
    AppTest.from_string(_IMPORTS, default_timeout=600).run()
    test = AppTest.from_string(_SCRIPT, default_timeout=600)
    first_s, first_processor_s = _timed(test)
    refreshes = [_timed(test) for _ in range(_REFRESHES)]
    n_bytes = (folder / "study.db").stat().st_size
    shutil.rmtree(folder)
    return Times(
        gpus=n_gpus,
        days=days,
        trials=int(days * 86_400 / trial_s) * n_gpus,
        database_bytes=n_bytes,
        first_s=first_s,
        first_processor_s=first_processor_s,
        refresh_s=statistics.median(wall_s for wall_s, _ in refreshes),
        refresh_processor_s=statistics.median(processor_s for _, processor_s in refreshes),
    )


def _timed(test: AppTest) -> tuple[float, float]:
    began_s, began_processor_s = time.perf_counter(), time.process_time()
    test.run()
    took_s = time.perf_counter() - began_s, time.process_time() - began_processor_s
    problems = [*(each.message for each in test.exception), *(each.value for each in test.error)]
    if problems or not test.get("bidi_component"):
        raise SystemExit(f"The page shows no chart: {problems}")
    return took_s


def table(times: Times) -> str:
    return (
        "| GPUs | days | trials | SQLite | first (processor time) | refresh (processor time) |\n"
        "|---|---|---|---|---|---|\n"
        f"| {times.gpus} | {times.days:g} | {times.trials:,} | "
        f"{times.database_bytes / 1e6:.0f} MB | "
        f"{times.first_s:.2f} s ({times.first_processor_s:.2f} s) | "
        f"{times.refresh_s:.2f} s ({times.refresh_processor_s:.2f} s) |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the page of devices.")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--trial", type=float, default=600.0, help="seconds of a trial")
    parser.add_argument("--output", type=Path, default=Path("benchmark-devices-page.json"))
    args = parser.parse_args()
    print(f"{this_machine()}, load {psutil.getloadavg()[0]:.1f}", flush=True)
    times = measure(args.gpus, args.days, args.trial)
    packages = package_versions(Path(sys.executable), _PACKAGES)
    write_json(args.output, packages={"tuner": packages}, figures=asdict(times))
    print(f"\n{table(times)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
