"""Who starts the queue's process, and what is left behind when the queue is empty.

`systemctl` and `crontab` are scripts here: they note how they were called.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.queue import service

Program = Callable[[str, str], None]
BROKEN = """
echo "crontab: the disk has failed" >&2
exit 1
"""


@pytest.fixture
def calls(tmp_path: Path) -> Callable[[], list[str]]:
    return lambda: (tmp_path / "calls").read_text().splitlines()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Writes a program of a name, the only one besides those of the shell."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(service, "_BEGINS_WITHIN_S", 0.0)

    def write(name: str, script: str) -> None:
        file = tmp_path / "bin" / name
        file.write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/calls\n{script}\n')
        file.chmod(0o755)

    return write


def test_a_service_that_was_about_to_end_is_started_again(
    program: Program, calls: Callable[[], list[str]], tmp_path: Path
) -> None:
    program("systemctl", 'case "$*" in *is-active*) exit 3;; esac')
    program("loginctl", "echo Linger=yes")

    def is_at_work() -> bool:
        return any(" start " in line for line in calls())

    started = service.start(tmp_path / "log", is_at_work)
    assert "after logout and reboot (systemd user service)" in started.text
    assert [line for line in calls() if "tuner-queue" in line and "is-active" not in line] == [
        "systemctl --user enable --now tuner-queue.service",
        "systemctl --user start tuner-queue.service",
    ]
    assert "-m tuner.queue" in (tmp_path / ".config/systemd/user/tuner-queue.service").read_text()


def test_an_empty_queue_leaves_no_service_for_the_next_boot(
    program: Program, calls: Callable[[], list[str]], tmp_path: Path
) -> None:
    program("systemctl", "")
    program("crontab", "echo no crontab for ann >&2; exit 1")
    enabled = tmp_path / ".config/systemd/user/default.target.wants/tuner-queue.service"
    enabled.parent.mkdir(parents=True)
    service.forget()
    enabled.symlink_to("../tuner-queue.service")
    service.forget()
    assert [line for line in calls() if line.startswith("systemctl")] == [
        "systemctl --user disable tuner-queue.service"
    ]
    assert {line for line in calls() if line.startswith("crontab")} == {"crontab -l"}


@pytest.mark.parametrize("call", [service.forget, service._add_to_crontab])
def test_a_table_that_cannot_be_read_is_not_written(
    program: Program, calls: Callable[[], list[str]], call: Callable[[], object]
) -> None:
    program("crontab", BROKEN)
    call()
    assert calls() == ["crontab -l"]
