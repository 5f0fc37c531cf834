"""Parse, check and show database URLs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from metastore.errors import BackendUnavailable, InvalidArgument

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

__all__ = ["DEFAULT_URL", "parse_url", "reachable_url", "redacted", "require_file"]

DEFAULT_URL = "sqlite:///metastore.db"
_SHOWN = frozenset(
    {"application_name", "connect_timeout", "host", "hostaddr", "port", "sslmode", "target_session_attrs"}
)
"""The options of a URL whose values may be shown. An unknown option may be a misspelled secret."""
_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "memory": "memory",
}


def parse_url(url: str | None) -> URL:
    """Return the parsed ``url``; None means METASTORE_URL, else the embedded default.

    Raises InvalidArgument for anything but postgresql+psycopg, sqlite and memory. The error
    never shows the URL itself: it may hold a password.
    """
    from sqlalchemy.engine import make_url  # noqa: PLC0415  (importing the library does not import it)
    from sqlalchemy.exc import ArgumentError  # noqa: PLC0415

    text = url if url is not None else os.environ.get("METASTORE_URL") or DEFAULT_URL
    if not issubclass(type(text), str):
        raise InvalidArgument(f"a URL must be a string, not {type(text).__name__}")
    text = str.__str__(text)  # a subclass could have methods that disagree with its characters
    try:
        parsed = make_url(text)
    except (ArgumentError, ValueError):
        raise InvalidArgument(
            "the database URL cannot be parsed; write sqlite:///file.db or postgresql+psycopg://user@host:5432/database"
        ) from None
    driver = _DRIVERS.get(parsed.drivername)
    if driver is None:
        raise InvalidArgument(
            f"the driver {parsed.drivername!r} is not supported; use postgresql+psycopg:// or sqlite:///"
        )
    _check_parts(parsed, driver, text)
    return parsed.set(drivername=driver)


def _is_host(name: str) -> bool:
    """Whether a name, or an address, can be looked up."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True


def _check_parts(url: URL, driver: str, text: str) -> None:
    """Refuse parts that a driver would ignore or cut short, and a password that was parsed as another part."""
    if any(part and "\x00" in part for part in (url.host, url.database, url.username, str(url.password or ""))):
        raise InvalidArgument("the database URL has a NUL character; remove it")
    if not all(_is_host(host) for host in (url.host or "").split(",")):
        raise InvalidArgument(
            "the database URL has a host whose name cannot be looked up: a part of it is empty, or has more than 63 "
            "characters; write another host"
        )
    if driver.startswith("postgresql") and _is_cut_wrongly(url, text):
        raise InvalidArgument(
            "the database URL has an @ or another reserved character in a name, a password or an option, so that it is "
            "not clear where the host begins; write @ as %40, / as %2F, ? as %3F and : as %3A"
        )
    if driver == "sqlite" and (url.host or url.username or url.port):
        raise InvalidArgument(
            "a SQLite URL has three slashes before a relative path, four before an absolute one: sqlite:///file.db"
        )
    if driver == "sqlite" and url.query:
        raise InvalidArgument(
            "a SQLite URL takes no options; remove what is behind the question mark, or write ? as %3F"
        )


def _is_cut_wrongly(url: URL, text: str) -> bool:
    """Whether a part of a password may have been read as the user, the host, the port or the database."""
    if url.port is not None and not 0 < url.port < 1 << 16:
        return True
    user, _, rest = text.partition("://")[2].partition("@")
    option = "=" in user.partition("?")[2]  # SQLAlchemy takes host:1/db?password=…@… for the password of a user "host"
    return "@" in text and ("@" in rest or option or url.username is None or "?" in url.username)


def reachable_url(url: str | None) -> str:
    """Return the URL as other processes, in other folders, must write it. It has the password, if there is one.

    Raises InvalidArgument for a database in memory.
    """
    parsed = parse_url(url)
    if parsed.drivername == "memory" or (parsed.drivername == "sqlite" and parsed.database in (None, "", ":memory:")):
        raise InvalidArgument("Spark runs it in several processes; give a database that they share, not one in memory")
    if parsed.drivername == "sqlite" and parsed.database is not None:
        parsed = parsed.set(database=str(Path(parsed.database).absolute()))
    return parsed.render_as_string(hide_password=False)


def redacted(url: URL) -> str:
    """Return the URL with its password hidden, and without the options that may be secrets."""
    return url.difference_update_query(set(url.query) - _SHOWN).render_as_string(hide_password=True)


def require_file(url: URL) -> None:
    """Raise BackendUnavailable for a SQLite file that is not there. (A folder that is missing is told by SQLite.)"""
    if url.drivername != "sqlite" or url.database in (None, "", ":memory:"):
        return
    file = Path(str(url.database))
    if file.parent.is_dir() and not file.exists():
        raise BackendUnavailable(
            f"there is no database {redacted(url)}; name one with --url or METASTORE_URL, or make one: "
            "metastore migrate"
        )
