"""How the dashboard is started: a Streamlit process of its own, told by its environment."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from tuner.errors import LaunchError
from tuner.verbs.source import Place

#: A URL may hold a password, and everybody on the machine can read command lines.
DATABASE_VARIABLE = "TUNER_DASHBOARD_DATABASE"
#: Which study is shown first; empty or absent: the newest.
STUDY_VARIABLE = "TUNER_DASHBOARD_STUDY"
_ROOT = Path(__file__).resolve().parents[1]
_APP = _ROOT / "app" / "main.py"
_STARTING_S = 60.0
_ENDING_S = 5.0
_POLL_S = 0.1


def check_installed() -> None:
    """
    Raises:
        LaunchError: If the dashboard's own packages are not there.
    """
    if any(importlib.util.find_spec(name) is None for name in ("streamlit", "plotly")):
        raise LaunchError("The dashboard needs Streamlit: pip install 'tuner[dashboard]'")


def command(*, host: str, port: int) -> list[str]:
    """What is started. It names no database."""
    options = {
        "server.address": host,
        "server.port": port,
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "viewer",
        "client.showErrorDetails": "none",
        "logger.level": "warning",
    }
    # -P: what lies in the folder where the user stands must not shadow the dashboard's modules.
    start = [sys.executable, "-P", "-m", "streamlit", "run", str(_APP)]
    return start + [f"--{name}={value}" for name, value in options.items()]


def environment(place: Place, environ: Mapping[str, str]) -> dict[str, str]:
    """With the database, and so that the modules of the dashboard are found."""
    paths = [str(_ROOT), *filter(None, [environ.get("PYTHONPATH")])]
    return {
        **environ,
        "PYTHONPATH": os.pathsep.join(paths),
        DATABASE_VARIABLE: place.url,
        STUDY_VARIABLE: place.study or "",
    }


def address(*, host: str, port: int) -> str:
    """What is typed into a browser."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"


def serve(place: Place, *, host: str, port: int, environ: Mapping[str, str]) -> int:
    """Runs the dashboard until it ends or is interrupted.

    Returns:
        0 after Ctrl-C, else the exit status of the server.

    Raises:
        LaunchError: If it doesn't answer.
    """
    # Of a session of its own: Ctrl-C reaches this process alone, which then ends it in order.
    server = subprocess.Popen(
        command(host=host, port=port),
        env=environment(place, environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        where = address(host=host, port=port)
        _wait_until_it_answers(server, where)
        print(f"Dashboard of {place.shown}: {where} (Ctrl-C ends it)", flush=True)
        return server.wait()
    except KeyboardInterrupt:
        print("The dashboard has ended; studies go on.", flush=True)
        return 0
    finally:
        _end(server)
        signal.signal(signal.SIGTERM, before)


def _interrupt(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _wait_until_it_answers(server: subprocess.Popen[bytes], where: str) -> None:
    until = time.monotonic() + _STARTING_S
    while time.monotonic() < until:
        if server.poll() is not None:
            raise LaunchError(
                f"The dashboard could not be started at {where} (exit code {server.returncode}); "
                "its own words are above. Another port: --port 8502"
            )
        try:
            with urllib.request.urlopen(f"{where}/_stcore/health", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(_POLL_S)
    raise LaunchError(f"The dashboard has not answered at {where} for {_STARTING_S:.0f} s.")


def _end(server: subprocess.Popen[bytes]) -> None:
    if server.poll() is None:
        server.terminate()
        try:
            server.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
