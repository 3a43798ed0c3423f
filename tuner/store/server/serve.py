"""Runs a PostgreSQL server in the foreground until it is stopped."""

from __future__ import annotations

import ipaddress
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from urllib.parse import quote

from tuner.errors import EXIT_STUDY_FAILED, LaunchError
from tuner.store.server.folder import ROLE, ServerFolder, server_identity
from tuner.store.server.programs import Programs, server_programs

_STARTING_S = 60.0
_STOPPING_S = 60.0
_POLL_S = 0.05
#: Messages of a server while remains of a killed one still exist.
_REMAINS = ("pre-existing shared memory block", 'lock file "postmaster.pid" already exists')
_REMAINS_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a server."""

    #: A name or an address; `0.0.0.0` and `::` mean each of this machine's.
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def reached_as(self) -> str:
        """The host name for clients."""
        return socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def serve(
    path: Path, address: Address, *, without_tls: bool = False, say: Callable[[str], None] = print
) -> int:
    """Runs a server until SIGINT or SIGTERM.

    Args:
        path: Its folder, which is created.
        address: Where it listens.
        without_tls: Let other machines connect without TLS.
        say: Shows a line to the user.

    Returns:
        0 after a signal, 1 if the server ended by itself.

    Raises:
        LaunchError: If it does not start.
    """
    folder = ServerFolder(path=path.absolute())
    programs = server_programs(folder.data_version)
    server_identity()
    needs_tls = not (address.is_loopback or without_tls)
    if needs_tls and not programs.has_tls():
        raise LaunchError(
            f"The PostgreSQL {programs.version} in {programs.folder} has no TLS, which --host "
            f"{address.host} needs. Install the one of your system (apt-get install postgresql), "
            "or add --no-tls if you trust everyone on the network between the machines."
        )
    with folder.held(str(address)), _stop_requested() as is_stopping:
        _check_free(address)
        folder.make(programs)
        if needs_tls:
            folder.make_certificate((address.reached_as, "localhost"))
        folder.write_access_rules(is_public=not address.is_loopback, needs_tls=needs_tls)
        server = _started(folder, programs, _settings(folder, address, needs_tls), is_stopping)
        try:
            if server.poll() is None and not is_stopping():
                say(f"PostgreSQL {programs.version} listens on {address}. Ctrl-C stops it.")
                say(f"storage: {storage_line(folder, address, needs_tls=needs_tls)}")
            while server.poll() is None and not is_stopping():
                time.sleep(_POLL_S)
        finally:
            was_running = server.poll() is None
            _stop(server)
    if was_running:
        say("PostgreSQL has stopped. The same command starts it again.")
        return 0
    raise ServerEnded(
        f"PostgreSQL ended by itself (exit status {server.returncode}). The same command starts "
        f"it again. The end of {folder.log}:\n{_end_of(folder.log)}"
    )


class ServerEnded(LaunchError):
    """The server ended without a request to stop."""

    exit_code = EXIT_STUDY_FAILED


def storage_line(folder: ServerFolder, address: Address, *, needs_tls: bool) -> str:
    """Value of `storage` in a study file. It names the file of the password, not the password."""
    host = f"[{address.reached_as}]" if ":" in address.reached_as else address.reached_as
    certificate = quote(str(folder.certificate))
    tls = f"?sslmode=verify-ca&sslrootcert={certificate}" if needs_tls else ""
    return f"postgresql://{ROLE}:${{file:{folder.password}}}@{host}:{address.port}/{ROLE}{tls}"


def _settings(folder: ServerFolder, address: Address, needs_tls: bool) -> list[str]:
    settings = {
        "listen_addresses": address.host,
        "port": str(address.port),
        "unix_socket_directories": "",
        "hba_file": str(folder.access_rules),
        "ssl": "on" if needs_tls else "off",
    }
    if needs_tls:
        settings |= {"ssl_cert_file": str(folder.certificate), "ssl_key_file": str(folder.key)}
    return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]


def _check_free(address: Address) -> None:
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        family, kind, number, _, place = found[0]
        with closing(socket.socket(family, kind, number)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except socket.gaierror as error:
        raise LaunchError(f"--host {address.host} is not known: {error.strerror}.") from error
    except OSError as error:
        raise LaunchError(
            f"Cannot listen on {address}: {error.strerror}. Name another --port, or an address of "
            "this machine."
        ) from error


def _started(
    folder: ServerFolder, programs: Programs, settings: list[str], is_stopping: Callable[[], bool]
) -> subprocess.Popen[bytes]:
    give_up_at_s = time.monotonic() + _REMAINS_S
    while True:
        size = folder.log.stat().st_size if folder.log.exists() else 0
        server = folder.start(programs, *settings)
        try:
            if _is_ready(server, folder, is_stopping) or is_stopping():
                return server
        except BaseException:
            _stop(server)
            raise
        said = folder.log.read_bytes()[size:].decode(errors="replace")
        if server.poll() is None:
            _stop(server)
            raise LaunchError(f"PostgreSQL was not ready within {_STARTING_S:g} s: {folder.log}")
        is_passing = any(words in said for words in _REMAINS)
        if not is_passing or time.monotonic() > give_up_at_s:
            raise LaunchError(f"PostgreSQL did not start:\n{said.strip()[-1000:]}")
        time.sleep(_POLL_S)


def _is_ready(
    server: subprocess.Popen[bytes], folder: ServerFolder, is_stopping: Callable[[], bool]
) -> bool:
    """Waits until the server reports readiness in its file `postmaster.pid`."""
    give_up_at_s = time.monotonic() + _STARTING_S
    while server.poll() is None and time.monotonic() < give_up_at_s and not is_stopping():
        with suppress(OSError, ValueError, IndexError):
            lines = (folder.data / "postmaster.pid").read_text().splitlines()
            if int(lines[0]) == server.pid and lines[7].strip() == "ready":
                return True
        time.sleep(_POLL_S)
    return False


def _stop(server: subprocess.Popen[bytes]) -> None:
    """Ends connections and writes everything to the disk (a fast shutdown)."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if server.poll() is not None:
            return
        server.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            server.wait(_STOPPING_S)


@contextmanager
def _stop_requested() -> Iterator[Callable[[], bool]]:
    """Records SIGINT and SIGTERM; closing the terminal does not end the server."""
    requested: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        requested.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield lambda: bool(requested)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_of(log: Path) -> str:
    with suppress(OSError):
        return "\n".join(log.read_text(errors="replace").splitlines()[-5:])
    return ""
