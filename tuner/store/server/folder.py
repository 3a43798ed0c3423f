"""The folder of a PostgreSQL server: data, password, certificate and lock."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.errors import LaunchError
from tuner.store.server.programs import Programs

#: Name of the role and of the database.
ROLE = "tuner"
#: Whom PostgreSQL runs as if root starts it: it refuses root.
_SERVER_USER = "postgres"
_PASSWORD_BYTES = 24
_MAX_CONNECTIONS = 200
_CERTIFICATE_DAYS = 3650
#: prctl(2): sends the process a signal when the thread that started it ends.
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFolder:
    """The folder of a server."""

    path: Path

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def password(self) -> Path:
        """A file with one line that only its owner can read."""
        return self.path / "password"

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def access_rules(self) -> Path:
        """In the form of `pg_hba.conf`; written at each start."""
        return self.path / "access.conf"

    @property
    def certificate(self) -> Path:
        return self.path / "server.crt"

    @property
    def key(self) -> Path:
        return self.path / "server.key"

    @property
    def data_version(self) -> int | None:
        """Major version of PostgreSQL that created the data; None if there is none yet."""
        try:
            return int((self.data / "PG_VERSION").read_text().partition(".")[0])
        except (OSError, ValueError):
            return None

    @contextmanager
    def held(self, address: str) -> Iterator[None]:
        """Locks the folder: no other server may run on it.

        Args:
            address: Where this server listens, for the error message of others.

        Raises:
            LaunchError: If a server runs on it, or the folder cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = (self.path / "server.lock").open("a+", encoding="utf-8")
        except OSError as error:
            raise LaunchError(
                f"--folder {self.path} cannot be written: {error.strerror}. Name a folder of your "
                "own."
            ) from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise LaunchError(f"{self.path} is served already{_holder(file)}") from error
            file.truncate(0)
            here = {"host": socket.gethostname(), "pid": os.getpid(), "address": address}
            file.write(json.dumps(here))
            file.flush()
            yield

    def make(self, programs: Programs) -> None:
        """Makes the database, its role and its password, unless they are there.

        A folder in which this was interrupted is completed by the next start.

        Raises:
            LaunchError: If PostgreSQL refuses.
        """
        identity = server_identity()
        if identity:
            # The server's user reaches its data, and owns nothing else here.
            self.path.chmod(self.path.stat().st_mode | 0o111)
        if self.data_version is not None and self.password.exists():
            return
        if self.data_version is not None:
            raise LaunchError(f"{self.path} has data, but its file {self.password} is gone.")
        unfinished = self.path / "data.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        if identity:
            shutil.chown(unfinished, identity["user"])
        words = ("-U", "postgres", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C.UTF-8")
        password_file = self._superuser_password(identity)
        try:
            self.run(programs, "initdb", "-D", str(unfinished), "--pwfile", password_file, *words)
        finally:
            Path(password_file).unlink(missing_ok=True)
        with (unfinished / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.write(f"\n# Added by the tuner.\nmax_connections = {_MAX_CONNECTIONS}\n")
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        # Without a network and a role of all rights: no client can connect meanwhile.
        statements = (
            f"CREATE ROLE {ROLE} LOGIN PASSWORD '{password}'",
            f"CREATE DATABASE {ROLE} OWNER {ROLE}",
        )
        alone = ("--single", "-D", str(unfinished), "-c", "exit_on_error=on", "postgres")
        self.run(programs, "postgres", *alone, typed="\n".join(statements) + "\n")
        _write_secret(self.password, password + "\n")
        unfinished.rename(self.data)

    def _superuser_password(self, identity: Mapping[str, Any]) -> str:
        """File with a random password for the superuser, which is never shown."""
        path = self.path / "superuser"
        _write_secret(path, secrets.token_urlsafe(_PASSWORD_BYTES) + "\n")
        if identity:
            shutil.chown(path, identity["user"])
        return str(path)

    def make_certificate(self, names: tuple[str, ...]) -> None:
        """A self-signed certificate, unless the user has put one into the folder.

        Args:
            names: Host names and addresses at which clients reach the server.

        Raises:
            LaunchError: If `openssl` is not there or fails.
        """
        if not (self.certificate.exists() and self.key.exists()):
            known = ",".join(f"{'IP' if _is_address(name) else 'DNS'}:{name}" for name in names)
            openssl = shutil.which("openssl")
            if openssl is None:
                raise LaunchError(
                    "TLS needs a certificate, and the program openssl is not installed. Install "
                    f"it, or put {self.certificate.name} and {self.key.name} into {self.path}."
                )
            files = ("-keyout", str(self.key), "-out", str(self.certificate))
            subject = ("-subj", "/CN=tuner", "-addext", f"subjectAltName={known}")
            kind = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days")
            command = [openssl, *kind, str(_CERTIFICATE_DAYS), *files, *subject]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise LaunchError(f"openssl made no certificate: {done.stderr.strip()[-500:]}")
        self.key.chmod(0o600)
        if identity := server_identity():
            shutil.chown(self.key, identity["user"])

    def write_access_rules(self, *, is_public: bool, needs_tls: bool) -> None:
        """Writes PostgreSQL's access rules.

        Args:
            is_public: Whether other machines may connect.
            needs_tls: Whether they must use TLS.
        """
        lines = [f"host all all {net} scram-sha-256" for net in ("127.0.0.1/32", "::1/128")]
        if is_public:
            lines.append(f"{'hostssl' if needs_tls else 'host'} all all all scram-sha-256")
        self.access_rules.write_text("\n".join(lines) + "\n")
        self.access_rules.chmod(0o644)

    def run(self, programs: Programs, name: str, *words: str, typed: str = "") -> None:
        """Runs a program of PostgreSQL to its end.

        Raises:
            LaunchError: If it fails.
        """
        done = subprocess.run(
            [programs.path(name), *words],
            cwd=self.path,
            input=typed,
            capture_output=True,
            text=True,
            check=False,
            **_start_arguments(),
        )
        if done.returncode != 0:
            problem = f"{name} failed in {self.path}: {done.stderr.strip()[-500:]}"
            if server_identity() and "Permission denied" in done.stderr:
                problem += (
                    f"\nPostgreSQL refuses root and runs as the user {_SERVER_USER!r}, which must "
                    "be able to enter this folder. Name another --folder, or start as another user."
                )
            raise LaunchError(problem)

    def start(self, programs: Programs, *words: str) -> subprocess.Popen[bytes]:
        """Starts the server. Ctrl-C does not reach it; it ends with this process."""
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [programs.path("postgres"), "-D", str(self.data), *words],
                cwd=self.path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_end_with_parent,
                **_start_arguments(),
            )


def server_identity() -> Mapping[str, Any]:
    """Arguments of `subprocess` to run as another user; empty if the current user will do.

    Raises:
        LaunchError: If this is root, and no user that PostgreSQL accepts exists.
    """
    if os.geteuid() != 0:
        return {}
    try:
        user = pwd.getpwnam(_SERVER_USER)
    except KeyError:
        raise LaunchError(
            f"PostgreSQL refuses to run as root, and there is no user {_SERVER_USER!r} for it. "
            f"Start the command as another user, or add one: useradd --system {_SERVER_USER}"
        ) from None
    return {"user": _SERVER_USER, "group": user.pw_gid, "extra_groups": []}


def _end_with_parent() -> None:
    """Has the kernel stop the server in order should this process be killed."""
    if hasattr(_LIBC, "prctl"):  # Linux
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def _start_arguments() -> dict[str, Any]:
    identity = server_identity()
    # Messages are compared, and libpq's variables are for clients.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG"))}
    return {**identity, "env": {**environment, "LC_ALL": "C.UTF-8"}}


def _write_secret(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def _holder(file: Any) -> str:
    try:
        file.seek(0)
        one = json.load(file)
        return f", on {one['address']}, by process {one['pid']} of {one['host']}."
    except (ValueError, KeyError, TypeError):
        return "."


def _is_address(name: str) -> bool:
    return ":" in name or name.replace(".", "").isdigit()
