"""Who starts the queue's process: systemd's user services, else cron, else this terminal.

The first two start it again after a reboot.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_UNIT = "tuner-queue.service"
_CRON_MARK = "# tuner queue"
_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """How the queue's process was started, for people."""

    text: str


def start(log: Path) -> Started:
    """Starts the queue's process, so that it survives as much as this machine allows.

    Args:
        log: Where its own output goes.
    """
    if _start_by_systemd():
        return Started(text=_lingers_text())
    _start_detached(log)
    if _add_to_crontab():
        return Started(
            text="The queue goes on after logout, and cron starts it again after a reboot."
        )
    return Started(
        text="The queue goes on after logout, but not after a reboot: neither systemd's user "
        "services nor cron are here. After a reboot run: tuner queue"
    )


def _start_by_systemd() -> bool:
    if not _works("systemctl", "--user", "show-environment"):
        return False
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    unit = Path(config) / "systemd" / "user" / _UNIT
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text(unit_text(sys.executable, _state_home()), encoding="utf-8")
    is_loaded = _works("systemctl", "--user", "daemon-reload")
    return is_loaded and _works("systemctl", "--user", "enable", "--now", _UNIT)


def _state_home() -> str:
    """Where the queue is, if not at the usual place: neither systemd nor cron knows."""
    return os.environ.get("XDG_STATE_HOME", "")


def unit_text(python: str, state_home: str = "") -> str:
    """The unit of systemd. Only the queue's process gets a SIGTERM: it ends its study itself.

    Args:
        python: The interpreter.
        state_home: `XDG_STATE_HOME` of the user; empty for none.
    """
    state = f'Environment="{_escaped(f"XDG_STATE_HOME={state_home}")}"\n' if state_home else ""
    return (
        "[Unit]\nDescription=Queue of studies (tuner queue)\n\n"
        f'[Service]\n{state}ExecStart="{_escaped(python)}" -m tuner.queue\n'
        "KillMode=mixed\nTimeoutStopSec=120\n\n"
        "[Install]\nWantedBy=default.target\n"
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _lingers_text() -> str:
    shown = _run("loginctl", "show-user", str(os.getuid()), "--property=Linger")
    if shown is not None and "Linger=yes" in shown:
        return "The queue goes on after logout and reboot (systemd user service)."
    return (
        "The queue is a systemd user service. It goes on after logout and reboot once you run: "
        "loginctl enable-linger"
    )


def _add_to_crontab() -> bool:
    if shutil.which("crontab") is None:
        return False
    # Without a table of its own a user gets an error: then there is nothing to keep.
    present = _run("crontab", "-l") or ""
    lines = [line for line in present.splitlines() if not line.endswith(_CRON_MARK)]
    words = [sys.executable, "-m", "tuner.queue"]
    if state_home := _state_home():
        words = ["env", f"XDG_STATE_HOME={state_home}", *words]
    command = shlex.join(words).replace("%", "\\%")
    table = "\n".join([*lines, f"@reboot {command} {_CRON_MARK}"]) + "\n"
    return _run("crontab", "-", stdin=table) is not None


def _start_detached(log: Path) -> None:
    with log.open("ab") as output:
        subprocess.Popen(
            [sys.executable, "-m", "tuner.queue"],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _works(*words: str) -> bool:
    return _run(*words) is not None


def _run(*words: str, stdin: str = "") -> str | None:
    """The output of a program; None where it is absent or fails."""
    try:
        done = _call(words, stdin)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _call(words: Sequence[str], stdin: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, input=stdin, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
