"""The dashboard's server: `python -m tuner.app.server --host 127.0.0.1 --port 8501`.

It imports and reads what a first page needs in advance, and serves Plotly's program itself. The
database is set in its environment (`tuner.monitoring.dashboard_process`).
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import threading
from datetime import UTC, datetime
from pathlib import Path

from starlette.middleware import Middleware
from streamlit.starlette import App

import tuner.app.main
from tuner.app.assets import Assets
from tuner.app.control_session import ControlCookie
from tuner.app.data.page_data import look_at
from tuner.app.late_refresh import skip_late_refreshes
from tuner.errors import TunerError
from tuner.monitoring.dashboard_process import DATABASE_VARIABLE, STUDY_VARIABLE

_MAIN = Path(tuner.app.main.__file__)
_LOG = logging.getLogger(__name__)


def _end_with_the_parent() -> None:
    """Ends this server when its parent is gone, which closes the pipe."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _read_ahead() -> None:
    """Reads in advance what the first pages need; errors are shown there."""
    try:
        look = look_at(os.environ[DATABASE_VARIABLE])
        studies = look.studies()
        name = os.environ.get(STUDY_VARIABLE)
        study = studies.get(name) if name else None
        if study or studies:
            look.read_ahead(study or list(studies.values())[-1], datetime.now(UTC))
    except TunerError as error:
        _LOG.info("Nothing was read ahead: %s", error)


def _exempt_modules_from_collection() -> None:
    """Keeps the garbage collector away from what was imported: it stays until the end.

    Streamlit collects after each run of a page's script. With 300,000 objects of modules that takes
    0.13 s, in which no thread of the server runs, and so no page gets its answer.
    """
    gc.collect()
    gc.freeze()


def settings(host: str, port: int) -> dict[str, object]:
    """Streamlit's settings, by the names of its own options."""
    return {
        "server.address": host,
        "server.port": port,
        "server.headless": True,
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": False,
        "client.toolbarMode": "viewer",
        "client.showErrorDetails": "none",
        "logger.level": "warning",
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8501)
    told = parser.parse_args()
    threading.Thread(target=_read_ahead, daemon=True, name="read ahead").start()
    threading.Thread(target=_end_with_the_parent, daemon=True, name="parent").start()
    skip_late_refreshes()
    _exempt_modules_from_collection()
    middleware = [Middleware(ControlCookie, port=told.port), Middleware(Assets)]
    App(_MAIN, middleware=middleware).run(config=settings(told.host, told.port))


if __name__ == "__main__":
    main()
