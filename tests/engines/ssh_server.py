"""A real sshd on loopback addresses, which stand for hosts with a home folder of their own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

HOSTS = ("127.0.0.1", "127.0.0.2")
_WAIT_S = 30.0
_CONFIG = """
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile {folder}/pid
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
SetEnv HOME={folder}/home PATH={path}
"""


@dataclass(frozen=True, kw_only=True)
class SshServer:
    """Who may log in with the key of `options`: whoever runs the tests."""

    folder: Path
    port: int

    @property
    def options(self) -> list[str]:
        """What `ssh` needs to log in, as `engine.ssh.options`."""
        known = f"UserKnownHostsFile={self.folder}/known_hosts"
        settings = ("StrictHostKeyChecking=accept-new", known, "LogLevel=ERROR")
        pairs = [word for setting in settings for word in ("-o", setting)]
        return ["-F", "none", "-p", str(self.port), "-i", f"{self.folder}/user_key", *pairs]

    @property
    def home(self) -> Path:
        return self.folder / "home"


def sshd_program() -> str | None:
    # sshd starts itself again for each login, by its whole path.
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@pytest.fixture(scope="session")
def ssh_server() -> Iterator[SshServer]:
    """One for all tests; skipped where there is no sshd, but for CI."""
    program = sshd_program()
    if program is None or shutil.which("ssh") is None or shutil.which("rsync") is None:
        missing = "sshd, ssh and rsync are needed: apt-get install openssh-server rsync"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    with run_ssh_server(program) as server:
        yield server


@contextmanager
def run_ssh_server(program: str, prefix: Sequence[str] = ()) -> Iterator[SshServer]:
    """Starts a server, and ends it.

    Args:
        program: `sshd`, with its whole path.
        prefix: What to put before its command.
    """
    with tempfile.TemporaryDirectory(prefix="tuner-ssh-") as name:
        folder = Path(name)
        process, port = _start(program, folder, prefix)
        try:
            yield SshServer(folder=folder, port=port)
        finally:
            process.terminate()
            process.wait()


def _start(
    program: str, folder: Path, prefix: Sequence[str]
) -> tuple[subprocess.Popen[bytes], int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    words = [*prefix, *lay_out(program, folder, port, HOSTS)]
    log = (folder / "log").open("wb")
    process = subprocess.Popen(words, stdout=log, stderr=log)
    give_up_at_s = time.monotonic() + _WAIT_S
    while not _answers(port):
        assert time.monotonic() < give_up_at_s, (folder / "log").read_text()
        time.sleep(0.05)
    return process, port


def lay_out(program: str, folder: Path, port: int, addresses: Sequence[str]) -> list[str]:
    """Keys, an empty home folder and the settings of a server; returns its command.

    Args:
        program: `sshd`, with its whole path.
        folder: Where all of it goes.
        port: On which it listens.
        addresses: On which it listens.
    """
    (folder / "home").mkdir()
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # privilege separation wants it
    for key in ("host_key", "user_key"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
        subprocess.run(words, check=True)
    listen = "\n".join(f"ListenAddress {each}" for each in addresses)
    text = _CONFIG.format(folder=folder, port=port, path=os.environ["PATH"])
    (folder / "config").write_text(f"{listen}\n{text}")
    return [program, "-D", "-e", "-f", str(folder / "config")]


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HOSTS[-1], port), timeout=1):
        return True
    return False
