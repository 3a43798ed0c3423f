"""The storage URL: variables filled in, SQLite paths made absolute, the password never shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_SCHEME = re.compile(r"[\w.+-]*://")
_URL = re.compile(r"[\w.+-]+://\S+")
_SECRET_IN_QUERY = re.compile(r"(?i)([?&][^=&]*(?:password|passwd|pwd|secret|token)[^=&]*=)[^&]*")
_FORMS = (
    "a SQLAlchemy URL: sqlite:///study.db, postgresql+psycopg://user:password@host/name "
    "or mysql+pymysql://user:password@host/name"
)
_EXTRAS = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql"}


def resolve_storage(text: str, *, folder: Path, environ: Mapping[str, str]) -> str:
    """The URL to connect to, password included.

    Args:
        text: The URL as the study file has it, with `${VARIABLE}` places.
        folder: Where a relative SQLite path begins.
        environ: Fills the places.

    Raises:
        ValueError: If a variable is unset, or the URL is malformed or of a database that is
            not supported; to be read after the key. Never holds a password.
    """
    filled = _fill(text, environ)
    # Messages show the text before filling: a variable may hold the password, or all of the URL.
    url = _parse(filled, shown=_hidden(text))
    _check_driver(url, shown=masked_url(text))
    if url.get_backend_name() != "sqlite":
        return filled
    return _with_absolute_path(url, folder, text)


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


def _fill(text: str, environ: Mapping[str, str]) -> str:
    for name in _VARIABLE.findall(text):
        if name not in environ:
            raise ValueError(
                f"needs ${{{name}}}, but the environment variable {name} is not set. "
                f"Set it (export {name}=...), or write the value."
            )
    return _VARIABLE.sub(lambda match: environ[match[1]], text)


def _parse(text: str, *, shown: str) -> URL:
    try:
        return make_url(text)
    except (ArgumentError, ValueError):
        # Without the cause: its text can hold a part of the password.
        raise ValueError(f"is {shown!r}, but must be {_FORMS}.") from None


def _hidden(text: str) -> str:
    masked = masked_url(text)
    if "@" in masked:
        return masked
    scheme, rest = _split(masked)
    return scheme + re.sub(r":.*", ":***", rest, flags=re.DOTALL)


def _check_driver(url: URL, *, shown: str) -> None:
    try:
        url.get_dialect().import_dbapi()
    except NoSuchModuleError:
        name = url.drivername
        hint = " Write postgresql, not postgres." if name.startswith("postgres") else ""
        raise ValueError(
            f"is {shown!r}, but there is no database {name!r}. It must be {_FORMS}.{hint}"
        ) from None
    except ImportError as error:
        extra = _EXTRAS.get(url.get_backend_name())
        advice = f"pip install 'tuner[{extra}]'" if extra else f"Install {error.name}"
        raise ValueError(
            f"is {shown!r}, whose driver is not installed ({error}). {advice}."
        ) from error


def _with_absolute_path(url: URL, folder: Path, text: str) -> str:
    path = url.database
    if not path or path == ":memory:":
        raise ValueError(
            f"is {text!r}, a database in memory, which would be gone at the end. "
            "Use a file, such as sqlite:///study.db."
        )
    if not path.startswith("file:"):
        url = url.set(database=str((folder / Path(path).expanduser()).resolve()))
    return url.render_as_string(hide_password=False)


def without_passwords(text: str) -> str:
    """A study file's text for the record, should somebody have typed a password into it.

    A URL that names a variable is left as it is: it holds the variable's name and no secret.
    """
    return _URL.sub(lambda url: url[0] if _VARIABLE.search(url[0]) else masked_url(url[0]), text)
