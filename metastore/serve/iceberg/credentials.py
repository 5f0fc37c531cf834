"""Credentials for the files of a warehouse, for clients that ask for them and for the server itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from posixpath import normpath
from typing import Final, Protocol
from urllib.parse import unquote

from metastore.clock import SYSTEM
from metastore.errors import InvalidArgument
from metastore.kinds.secret import PREFIX, Secret, read, secret

__all__ = ["CannotVend", "Static", "Vended", "Vendor", "asks_for_credentials", "is_below"]

_REREAD: Final = 60.0
"""How long a secret is remembered after it was read (seconds)."""
_HEADER: Final = "x-iceberg-access-delegation"
_VENDED: Final = "vended-credentials"
_SECRETS: Final = frozenset(
    {
        "s3.access-key-id",
        "s3.secret-access-key",
        "s3.session-token",
        "client.access-key-id",
        "client.secret-access-key",
        "client.session-token",
        "adls.account-key",
        "adls.client-secret",
        "adls.connection-string",
        "adls.sas-token",
        "adls.token",
        "gcs.oauth2.token",
        "hf.token",
        "token",
    }
)
"""Properties that are secrets. A command line may not hold them, because every user of the machine sees it."""
_SECRETS_OF_ACCOUNTS: Final = ("adls.sas-token.", "adls.connection-string.")
"""Prefixes of secrets: the rest of the name is an account of Azure."""


@dataclass(frozen=True)
class Vended:
    """Properties of a file system that hold for the files below ``prefix``, such as those of an S3 session."""

    prefix: str
    config: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Vended({self.prefix!r}, {sorted(self.config)})"


class CannotVend(Exception):
    """Credentials cannot be made now. The server's log shows the message, so it must not have a secret."""


class Vendor(Protocol):
    """Makes credentials for clients. A deployment implements it, for example with sessions of its cloud.

    Several threads call it at once, for each load that asks for credentials. If it raises an error, the answer to a
    load is 503, and the client tries again; the answer to a create has no credentials. The log shows the message of a
    :class:`CannotVend`, and of any other error its class only: a message may have a secret.
    """

    def vend(self, location: str, principal: str) -> Vended | None:
        """Return credentials for one user, for the files below a table's ``location``; None: no credentials."""
        ...


class Static:
    """The same credentials for all files of a warehouse. Values may be references: ``secret:env:NAME``.

    A secret is read when it is needed, and again after a minute, so a replaced file needs no restart.
    """

    def __init__(self, place: str, properties: Mapping[str, str]) -> None:
        """Check the properties, and read the secrets once. Raises InvalidArgument if a secret is not a reference."""
        self._place = place
        self._properties = {key: _checked(key, value) for key, value in properties.items()}
        self._read: tuple[float, dict[str, str]] = (float("-inf"), {})
        self.properties()

    def properties(self) -> dict[str, str]:
        """Return the properties with their secrets. Raises InvalidArgument if one cannot be read."""
        when, known = self._read
        if SYSTEM.monotonic() - when < _REREAD:
            return known
        values = {
            key: read(value, f"the credential {key}") if isinstance(value, Secret) else value
            for key, value in self._properties.items()
        }
        self._read = (SYSTEM.monotonic(), values)
        return values

    def shown(self) -> dict[str, str]:
        """Return the properties that are not secrets."""
        return {key: value for key, value in self._properties.items() if not isinstance(value, Secret)}

    def vend(self, location: str, principal: str) -> Vended:
        """Return the credentials of the warehouse."""
        return Vended(self._place.rstrip("/") + "/", self.properties())


def _checked(key: str, value: str) -> str:
    if value.startswith(PREFIX):
        return secret(value.removeprefix(PREFIX))
    if key in _SECRETS or key.startswith(_SECRETS_OF_ACCOUNTS):
        raise InvalidArgument(f"{key} is a secret; refer to it: {key}=secret:env:NAME or {key}=secret:file:/path")
    return value


def asks_for_credentials(headers: Mapping[str, str]) -> bool:
    """Whether a request's client asks the catalog for credentials."""
    return _VENDED in [one.strip().lower() for one in headers.get(_HEADER, "").split(",")]


def is_below(location: str, place: str) -> bool:
    """Whether a location is below a warehouse's folder: no ``..`` leads out of it, encoded or not."""
    scheme, _, path = unquote(location).partition("://")
    whole = f"{scheme}://{normpath(path)}"
    return whole.startswith(unquote(place).rstrip("/") + "/")
