"""Database URLs: which are understood, and how they are shown."""

from __future__ import annotations

import os

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from metastore.errors import InvalidArgument

__all__ = ["DEFAULT_URL", "parse_url", "redacted"]

DEFAULT_URL = "sqlite:///metastore.db"
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
    text = url if url is not None else os.environ.get("METASTORE_URL") or DEFAULT_URL
    if not isinstance(text, str):
        raise InvalidArgument(f"a URL must be a string, not {type(text).__name__}")
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
    return parsed.set(drivername=driver)


def redacted(url: URL) -> str:
    """Return the URL with its password hidden."""
    return url.render_as_string(hide_password=True)
