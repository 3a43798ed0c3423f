"""Starts the queue's process: by systemd's user services, else cron, else this terminal.

The first two also restart it after a reboot.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_UNIT = "tuner-queue.service"
_CRON_MARK = "# tuner queue"
#: Messages of `crontab -l` for a user without a table.
_NO_TABLE = ("no crontab", "no such file")
_TIMEOUT_S = 20.0
_BEGINS_WITHIN_S = 5.0
_LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """How the queue's process was started, as text."""

    text: str


def start(log: Path, is_at_work: Callable[[], bool]) -> Started:
    """Starts the queue's process so that it survives as much as this machine allows.

    Args:
        log: Log of its own output.
        is_at_work: Whether it runs, or has nothing left to do.
    """
    if _start_by_systemd(is_at_work):
        return Started(text=_lingers_text())
    # A queue that is soon empty takes back what is entered before it begins.
    is_in_crontab = _add_to_crontab()
    _start_detached(log)
    if is_in_crontab:
        return Started(
            text="The queue goes on after logout, and cron starts it again after a reboot."
        )
    return Started(
        text="The queue goes on after logout, but not after a reboot: neither systemd's user "
        "services nor cron are here. After a reboot run: tuner queue"
    )


def forget() -> None:
    """Disables the start after a reboot: the queue is empty. `start` enables it again."""
    if (_units() / "default.target.wants" / _UNIT).is_symlink():
        _works("systemctl", "--user", "disable", _UNIT)
    lines = _crontab()
    left = [line for line in lines or () if not _is_ours(line)]
    if lines is None or left == lines:
        return
    if any(line.strip() for line in left):
        _run("crontab", "-", stdin=_table(left))
    else:
        _run("crontab", "-r")


def _start_by_systemd(is_at_work: Callable[[], bool]) -> bool:
    if not _works("systemctl", "--user", "show-environment"):
        return False
    unit = _units() / _UNIT
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text(unit_text(sys.executable, _state_home()), encoding="utf-8")
    if not _works("systemctl", "--user", "daemon-reload"):
        return False
    # A service that is about to end counts as started: systemd would do nothing then.
    for words in (("enable", "--now"), ("start",)):
        if not _works("systemctl", "--user", *words, _UNIT):
            return False
        if _until(is_at_work) or _works("systemctl", "--user", "--quiet", "is-active", _UNIT):
            return True
    return False


def _until(holds: Callable[[], bool]) -> bool:
    give_up_at_s = time.monotonic() + _BEGINS_WITHIN_S
    while not (has_begun := holds()) and time.monotonic() < give_up_at_s:
        time.sleep(_LOOK_EVERY_S)
    return has_begun


def _units() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def _state_home() -> str:
    """The queue's folder if it is not the default: neither systemd nor cron knows it."""
    return os.environ.get("XDG_STATE_HOME", "")


def unit_text(python: str, state_home: str = "") -> str:
    """The systemd unit. Only the queue's process gets a SIGTERM: it ends its study itself.

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
    lines = _crontab()
    if lines is None:
        return False
    words = [sys.executable, "-m", "tuner.queue"]
    if state_home := _state_home():
        words = ["env", f"XDG_STATE_HOME={state_home}", *words]
    command = _in_a_table(shlex.join(words))
    others = [line for line in lines if not _is_ours(line)]
    table = _table([*others, f"@reboot {command} {_CRON_MARK}"])
    return _run("crontab", "-", stdin=table) is not None


def _crontab() -> list[str] | None:
    """The user's table; None if there is no cron, or if the table cannot be read."""
    if shutil.which("crontab") is None:
        return None
    try:
        done = _call(("crontab", "-l"), "")
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode == 0:
        return done.stdout.splitlines()
    # Written after another error, the table would lose what is in it.
    has_none = any(text in done.stderr.lower() for text in _NO_TABLE)
    return [] if has_none else None


def _table(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"


def _in_a_table(text: str) -> str:
    return text.replace("%", "\\%")


def _is_ours(line: str) -> bool:
    """Whether a line starts this queue, and not one of another state folder."""
    if not line.endswith(_CRON_MARK):
        return False
    state_home = _state_home()
    named = _in_a_table(shlex.quote(f"XDG_STATE_HOME={state_home}"))
    return f" {named} " in line if state_home else "XDG_STATE_HOME=" not in line


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
    """The output of a program; None if it is absent or fails."""
    try:
        done = _call(words, stdin)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _call(words: Sequence[str], stdin: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
