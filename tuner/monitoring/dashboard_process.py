"""Starts the dashboard: a Streamlit process of its own, configured by its environment."""

from __future__ import annotations

import importlib.util
import ipaddress
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from tuner.errors import ConfigError, LaunchError
from tuner.launch.local_host.bounded_wait import ends_in_time
from tuner.queries.locate import Place

#: Not an argument: a URL may contain a password, and command lines are public on a machine.
DATABASE_VARIABLE = "TUNER_DASHBOARD_DATABASE"
#: Which study is shown first; empty or absent: the newest.
STUDY_VARIABLE = "TUNER_DASHBOARD_STUDY"
#: Token for users who may pause, stop, retry and enqueue; if empty or absent, the dashboard is
#: read-only.
TOKEN_VARIABLE = "TUNER_DASHBOARD_TOKEN"
#: Addresses of users who may do so after a login, separated by commas.
USERS_VARIABLE = "TUNER_DASHBOARD_USERS"
_MIN_TOKEN = 8
_ROOT = Path(__file__).resolve().parents[2]
_STARTING_S = 60.0
_ENDING_S = 5.0
_POLL_S = 0.1


def check_installed() -> None:
    """Checks the dashboard's packages.

    Raises:
        LaunchError: If they are not installed.
    """
    if any(importlib.util.find_spec(name) is None for name in ("streamlit", "plotly")):
        raise LaunchError("The dashboard needs Streamlit: pip install 'gpu-tuner[dashboard]'")


def read_token(file: Path | None, environ: Mapping[str, str]) -> str:
    """The token that allows control of studies; empty if there is none.

    Args:
        file: File whose first line is the token; None for the environment.
        environ: Environment of this process.

    Raises:
        ConfigError: If the file can't be read, or the token is too short.
    """
    if file is None:
        token, key = environ.get(TOKEN_VARIABLE, ""), TOKEN_VARIABLE
        if not token:
            return ""
    else:
        key = "--token-file"
        try:
            token = file.read_text(encoding="utf-8").partition("\n")[0].strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            raise ConfigError(f"is {file}, which can't be read: {reason}.", key=key) from error
    if len(token) < _MIN_TOKEN:
        problem = f"holds a token of {len(token)} characters; {_MIN_TOKEN} are the least."
        raise ConfigError(f"{problem} Make one: openssl rand -hex 16", key=key)
    return token


def command(*, host: str, port: int) -> list[str]:
    """The command, without the database."""
    # -P: files in the current folder must not shadow the dashboard's modules.
    return [sys.executable, "-P", "-m", "tuner.app.server", "--host", host, "--port", str(port)]


def environment(place: Place, environ: Mapping[str, str], token: str = "") -> dict[str, str]:
    """With the database and the token, and so that the modules of the dashboard are found."""
    paths = [str(_ROOT), *filter(None, [environ.get("PYTHONPATH")])]
    return {
        **environ,
        "PYTHONPATH": os.pathsep.join(paths),
        DATABASE_VARIABLE: place.url,
        STUDY_VARIABLE: place.study or "",
        TOKEN_VARIABLE: token,
    }


def address(*, host: str, port: int) -> str:
    """The address for a browser."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"


def exposure(host: str, *, has_control: bool) -> str:
    """Warning if the dashboard listens on a public address; empty for a local one.

    Args:
        host: The address.
        has_control: Whether a token or a login allows users to change studies.
    """
    if host == "localhost" or _is_loopback(host):
        return ""
    control = (
        "A token or a login is needed to change studies." if has_control else "It is read-only."
    )
    return (
        f"Listening on {host}, not on 127.0.0.1 only: everyone who can reach this port can read "
        "all studies of the database, with parameters, results, logs, paths and host names, over "
        f"unencrypted HTTP. {control}"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    place: Place, *, host: str, port: int, environ: Mapping[str, str], token: str = ""
) -> int:
    """Runs the dashboard until it ends or is interrupted.

    Args:
        place: The database, and the study to show first.
        host: Address to listen on.
        port: Port to listen on.
        environ: Environment of this process.
        token: Allows control of studies; if empty, the dashboard is read-only.

    Returns:
        0 after Ctrl-C, else the exit status of the server.

    Raises:
        LaunchError: If it doesn't answer.
    """
    if warning := exposure(host, has_control=bool(token or environ.get(USERS_VARIABLE))):
        print(warning, flush=True)
    # Of a session of its own: Ctrl-C reaches this process alone, which then ends it in order.
    server = subprocess.Popen(
        command(host=host, port=port),
        env=environment(place, environ, token),
        # Nothing is written there: it closes when this process ends, also after `kill -9`.
        stdin=subprocess.PIPE,
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
        print("The dashboard has ended; studies continue.", flush=True)
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
            ends_in_time(server, what="The dashboard", within_s=_ENDING_S)
