"""The storage URL: fills variables, makes SQLite paths absolute, and never shows the password.

A password can come from two sources, so that no shared file contains it:

    postgresql://tuner:${DB_PASSWORD}@host/tuner            an environment variable
    postgresql://tuner:${file:/run/secrets/db}@host/tuner   a file with one line

In place of a password the value is used literally, whatever characters it has; elsewhere it is part
of the URL. PostgreSQL's own ways (PGPASSFILE, ~/.pgpass, PGSERVICEFILE) work if the URL has no
password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from tuner.checkpoints.paths import expanded

_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_SCHEME = re.compile(r"[\w.+-]*://")
_URL = re.compile(r"[\w.+-]+://\S+")
_SECRET_IN_QUERY = re.compile(r"(?i)([?&][^=&]*(?:password|passwd|pwd|secret|token)[^=&]*=)[^&]*")
_FORMS = (
    "a SQLAlchemy URL: sqlite:///study.db, postgresql://user:${DB_PASSWORD}@host/name "
    "or mysql://user:${DB_PASSWORD}@host/name"
)
#: Have a meaning in a URL or at the beginning of a path.
_NOT_IN_A_DEFAULT = re.compile(r"[?#%$~]")
_FROM_FILE = "file:"
#: Drivers that the extras install; SQLAlchemy's own choice differs between its versions. Optuna
#: supports MariaDB only under the name of MySQL.
_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "mariadb+pymysql": "mysql+pymysql",
    "mariadb+mysqldb": "mysql+mysqldb",
}
_EXTRAS = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql"}


def resolve_storage(text: str, *, folder: Path, environ: Mapping[str, str]) -> str:
    """The URL to connect to, including the password.

    Args:
        text: The URL in the study file, with `${VARIABLE}` and `${file:PATH}` placeholders.
        folder: Base of relative paths, for SQLite and `${file:...}`.
        environ: Values of variables.

    Raises:
        ValueError: If a variable is unset, a file cannot be read, or the URL is malformed or of an
            unsupported database; worded to follow the key. Never contains a password.
    """
    filled = with_driver(_fill(text, folder, environ))
    # Messages show the text before filling: a variable may hold the password, or all of the URL.
    url = _parse(filled, shown=_hidden(text))
    _check_driver(url, shown=masked_url(text))
    if url.get_backend_name() != "sqlite":
        return filled
    return _with_absolute_path(url, folder, text)


def default_storage(study: str) -> str:
    """Default storage of a study: next to its file, under its own name."""
    return f"sqlite:///{_NOT_IN_A_DEFAULT.sub('_', study)}.db"


def with_driver(text: str) -> str:
    """A URL that names its driver: `postgresql://` means psycopg, `mysql://` means PyMySQL."""
    scheme, separator, rest = text.partition("://")
    return f"{_DRIVERS.get(scheme, scheme)}{separator}{rest}"


def masked_url(text: str) -> str:
    """A storage URL that may be shown and logged.

    Works on malformed URLs too: everything from the first colon of the address to its last @
    is hidden, because a password may itself hold any of `:/@`.
    """
    scheme, rest = _split(text)
    masked = re.sub(r"^([^:@]*):.*@", r"\1:***@", rest, flags=re.DOTALL)
    return scheme + _SECRET_IN_QUERY.sub(r"\1***", masked)


def _split(text: str) -> tuple[str, str]:
    match = _SCHEME.match(text)
    return (match[0], text[match.end() :]) if match else ("", text)


def _fill(text: str, folder: Path, environ: Mapping[str, str]) -> str:
    is_password = _place_of_password(text)

    def value_of(match: re.Match[str]) -> str:
        value = _value_of(match[1], folder, environ)
        return quote(value, safe="") if match.start() in is_password else value

    return _VARIABLE.sub(value_of, text)


def _place_of_password(text: str) -> range:
    """From the first colon of the address to its last @; empty if there is no password."""
    scheme, rest = _split(text)
    user, _, _ = _VARIABLE.sub(lambda match: "_" * len(match[0]), rest).rpartition("@")
    begin = user.find(":")
    return range(0) if begin < 0 else range(len(scheme) + begin, len(scheme) + len(user))


def _value_of(name: str, folder: Path, environ: Mapping[str, str]) -> str:
    if name.startswith(_FROM_FILE):
        return _read_secret(name, folder)
    if name not in environ:
        raise ValueError(
            f"needs ${{{name}}}, but the environment variable {name} is not set. "
            f"Set it (export {name}=...), or read a file: ${{file:/path/of/the/password}}."
        )
    return environ[name]


def _read_secret(name: str, folder: Path) -> str:
    path = folder / expanded(name.removeprefix(_FROM_FILE))
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"needs ${{{name}}}, but {path} is not text in UTF-8.") from None
    except OSError as error:
        raise ValueError(
            f"needs ${{{name}}}, but {path} cannot be read: {error.strerror}. "
            "Correct the path, or let your user read the file."
        ) from error
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret or "\n" in secret:
        raise ValueError(f"needs ${{{name}}}, but {path} must hold one line: the password alone.")
    return secret


def _parse(text: str, *, shown: str) -> URL:
    try:
        return make_url(text)
    except (ArgumentError, ValueError):
        # Without the cause: its text can hold a part of the password.
        is_file = re.fullmatch(r"[\w./~-]+", shown) is not None
        hint = f" Write sqlite:///{shown}" if is_file else ""
        raise ValueError(f"is {shown!r}, but must be {_FORMS}.{hint}") from None


def _hidden(text: str) -> str:
    masked = masked_url(text)
    if "@" in masked:
        return masked
    scheme, rest = _split(masked)
    return scheme + re.sub(r":.*", ":***", rest, flags=re.DOTALL)


def _check_driver(url: URL, *, shown: str) -> None:
    try:
        url.get_dialect().import_dbapi()
    except (NoSuchModuleError, ValueError):  # The latter for a name of more than two parts.
        name = url.drivername
        hint = " Write postgresql, not postgres." if name.startswith("postgres") else ""
        raise ValueError(
            f"is {shown!r}, but there is no database {name!r}. It must be {_FORMS}.{hint}"
        ) from None
    except ImportError as error:
        extra = _EXTRAS.get(url.get_backend_name())
        advice = f"pip install 'gpu-tuner[{extra}]'" if extra else f"Install {error.name}"
        raise ValueError(
            f"is {shown!r}, whose driver is not installed ({error}). {advice}."
        ) from error


def _with_absolute_path(url: URL, folder: Path, text: str) -> str:
    path = url.database
    if url.host or url.username or url.port is not None:
        raise ValueError(
            f"is {masked_url(text)!r}, which names a host, and SQLite is a file. Write three "
            "slashes: sqlite:///study.db."
        )
    if not path or path == ":memory:":
        raise ValueError(
            f"is {text!r}, a database in memory, which would be gone at the end. "
            "Use a file, such as sqlite:///study.db."
        )
    if not path.startswith("file:"):
        url = url.set(database=str(_resolved(folder / expanded(path), text)))
    return url.render_as_string(hide_password=False)


def _resolved(path: Path, text: str) -> Path:
    try:
        path.exists()  # Raises where no file can have this name.
        return path.resolve()
    except OSError as error:
        raise ValueError(f"is {text!r}, which cannot be a file: {error.strerror}.") from error
    except RuntimeError:
        raise ValueError(f"is {text!r}, a link that leads to itself.") from None


def without_passwords(text: str) -> str:
    """A study file's text for the record, without passwords in URLs.

    A placeholder for a password is kept: it is a name and no secret.
    """
    return _URL.sub(lambda url: _without_typed_password(url[0]), text)


def _without_typed_password(url: str) -> str:
    places = _place_of_password(url)
    typed = _VARIABLE.sub("", url[places.start + 1 : places.stop])
    if typed or not _VARIABLE.search(url):
        return masked_url(url)
    return _SECRET_IN_QUERY.sub(_masked_parameter, url)


def _masked_parameter(parameter: re.Match[str]) -> str:
    value = parameter[0].removeprefix(parameter[1])
    return parameter[0] if _VARIABLE.fullmatch(value) else f"{parameter[1]}***"
