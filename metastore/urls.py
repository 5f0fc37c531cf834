"""Parse, check and show database URLs: ``driver://user:password@host:port/database?option=value``.

They have the format of SQLAlchemy's URLs. SQLAlchemy itself takes longer to import than a short command runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from metastore.errors import BackendUnavailable, InvalidArgument

__all__ = ["DEFAULT_URL", "Url", "parse_url", "reachable_url", "redacted", "require_file"]

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

_DRIVER = re.compile(r"[\w+]+")


@dataclass(frozen=True, slots=True, repr=False)
class Url:
    """The parts of a database URL, without escapes. None: the URL does not have the part."""

    drivername: str
    username: str | None = None
    password: str | None = None
    host: str | None = None
    port: int | None = None
    database: str | None = None
    query: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict, hash=False)
    """The options; an option that is given several times has a tuple."""

    @property
    def is_postgres(self) -> bool:
        """Whether the database is PostgreSQL."""
        return self.drivername.startswith("postgresql")

    def set(self, **parts: Any) -> Url:
        """Return a copy with these parts replaced."""
        return replace(self, **parts)

    def render_as_string(self, hide_password: bool = True) -> str:
        """Return the URL as text; :func:`redacted` hides the secrets among the options, too."""
        text = f"{self.drivername}://"
        if self.username is not None:
            text += quote(self.username, safe=" +")
            if self.password is not None:
                text += ":***" if hide_password else f":{quote(self.password, safe=' +')}"
            text += "@"
        if self.host is not None:
            text += f"[{self.host}]" if ":" in self.host else self.host
        if self.port is not None:
            text += f":{self.port}"
        if self.database is not None:
            text += f"/{quote(self.database, safe=' +/')}"
        return f"{text}?{urlencode(sorted(self.query.items()), doseq=True)}" if self.query else text

    def __repr__(self) -> str:
        return redacted(self)


def parse_url(url: str | None) -> Url:
    """Return the parsed ``url``; for None, parse METASTORE_URL, or else the embedded default.

    Raises InvalidArgument for anything but postgresql+psycopg, sqlite and memory. The error
    never shows the URL itself: it may hold a password.
    """
    text = url if url is not None else os.environ.get("METASTORE_URL") or DEFAULT_URL
    if not issubclass(type(text), str):
        raise InvalidArgument(f"a URL must be a string, not {type(text).__name__}")
    text = str.__str__(text)  # a plain string: the methods of a subclass may disagree with its characters
    try:
        parsed = _parsed(text)
    except ValueError:
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


def _parsed(text: str) -> Url:
    """Return the parts of a URL. Raises ValueError if a part cannot be read, or would be cut short."""
    driver, mark, rest = text.partition("://")
    if not mark or not _DRIVER.fullmatch(driver):
        raise ValueError
    user, password, rest = _user(rest)
    place, _, options = rest.partition("?")
    server, slash, database = place.partition("/")
    host, port = _server(server)
    if "\n" in options:
        raise ValueError
    query: dict[str, str | tuple[str, ...]] = {}
    for key, value in parse_qsl(options):
        given = query.get(key)
        query[key] = value if given is None else (*((given,) if isinstance(given, str) else given), value)
    return Url(driver, user, password, host, port, unquote(database) if slash else None, query)


def _user(text: str) -> tuple[str | None, str | None, str]:
    """Split off the user and the password, which end at an @. The user contains neither a colon nor a slash."""
    name = re.split("[:/]", text, maxsplit=1)[0]
    if text[len(name) :].startswith(":") and "@" in text[len(name) :]:
        password, _, rest = text[len(name) + 1 :].partition("@")
        return unquote(name), unquote(password), rest
    user, at, _ = name.rpartition("@")
    return (unquote(user), None, text[len(user) + 1 :]) if at else (None, None, text)


def _server(text: str) -> tuple[str | None, int | None]:
    """Split the host from the port. An address with colons is in brackets."""
    host, colon, port = text.partition(":")
    if text.startswith("["):
        host, end, after = text[1:].partition("]")
        colon, port = after[:1], after[1:]
        if not host or not end or colon not in ("", ":"):
            raise ValueError
    return host or None, int(port) if colon else None


def _is_host(name: str) -> bool:
    """Whether a name, or an address, can be looked up."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True


def _check_parts(url: Url, driver: str, text: str) -> None:
    """Raise InvalidArgument for parts that a driver would ignore or cut short, or a password parsed as another part."""
    if any(part and "\x00" in part for part in (url.host, url.database, url.username, str(url.password or ""))):
        raise InvalidArgument("the database URL has a NUL character; remove it")
    # loaded only if needed: the codec of host names is large
    if url.host and not all(_is_host(host) for host in url.host.split(",")):
        raise InvalidArgument(
            "the database URL has a host whose name cannot be looked up: a part of it is empty, or has more than 63 "
            "characters; write another host"
        )
    if url.is_postgres and _is_cut_wrongly(url, text):
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


def _is_cut_wrongly(url: Url, text: str) -> bool:
    """Whether a part of a password may have been read as the user, the host, the port or the database."""
    if url.port is not None and not 0 < url.port < 1 << 16:
        return True
    user, _, rest = text.partition("://")[2].partition("@")
    option = "=" in user.partition("?")[2]  # in "host:1/db?password=…@…", a parser mistakes "host" for the user
    return "@" in text and ("@" in rest or option or url.username is None or "?" in url.username)


def reachable_url(url: str | None) -> str:
    """Return the URL for other processes, in other folders. It has the password, if there is one.

    Raises InvalidArgument for a database in memory.
    """
    parsed = parse_url(url)
    if parsed.drivername == "memory" or (parsed.drivername == "sqlite" and parsed.database in (None, "", ":memory:")):
        raise InvalidArgument("Spark runs several processes, which cannot share a database in memory; give another")
    if parsed.drivername == "sqlite" and parsed.database is not None:
        parsed = parsed.set(database=str(Path(parsed.database).absolute()))
    return parsed.render_as_string(hide_password=False)


def redacted(url: Url) -> str:
    """Return the URL with its password hidden, and without the options that may be secrets."""
    shown = {key: value for key, value in url.query.items() if key in _SHOWN}
    return url.set(query=shown).render_as_string(hide_password=True)


def require_file(url: Url) -> None:
    """Raise BackendUnavailable for a missing SQLite file. (SQLite itself reports a missing folder.)"""
    if url.drivername != "sqlite" or url.database in (None, "", ":memory:"):
        return
    file = Path(str(url.database))
    if file.parent.is_dir() and not file.exists():
        raise BackendUnavailable(
            f"there is no database {redacted(url)}; name one with --url or METASTORE_URL, or make one: "
            "metastore migrate"
        )
