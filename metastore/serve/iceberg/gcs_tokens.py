"""Short-lived keys of Google Cloud Storage: OAuth tokens for a table's folder. Needs the extra ``[gcs]``.

The server exchanges a token of its own identity for one with a credential access boundary, at Google's token service
(STS). The new token does no more than both the identity's roles and the boundary allow, and ends with the old one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC
from threading import Lock
from typing import Any, Final

from metastore.clock import SYSTEM
from metastore.errors import InvalidArgument
from metastore.serve.iceberg.boundary import Rule, rules
from metastore.serve.iceberg.credentials import CannotVend
from metastore.serve.iceberg.kept_keys import Made
from metastore.serve.iceberg.renewal import GCS_ENDS
from metastore.serve.iceberg.short_lived import ShortLived

__all__ = ["GcsTokens"]

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_STS: Final = "https://sts.googleapis.com/v1/token"
_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105  (a type)
_TIMEOUT: Final = (2, 3)
"""How long a call may take to connect and to answer (seconds). Two calls together take as long as a request waits."""
_LEFT: Final = 1800.0
"""How long a token of the server must still live to be exchanged (seconds), so that keys live for half an hour."""
_CODE: Final = re.compile(r"Error code ([\w.-]{1,64})", re.ASCII)


class GcsTokens(ShortLived[tuple[Rule, ...]]):
    """Make tokens that reach the objects of one table, for as long as a token of the server's identity lives."""

    def __init__(
        self, bucket: str, *, properties: Mapping[str, str] | None = None, endpoint: str | None = None
    ) -> None:
        """Check the arguments; ask for no token yet.

        ``bucket``: that of the warehouse. ``properties``: the properties of the warehouse's file system, of which
        clients get those that are not secrets. The server's identity is that of its environment (Application Default
        Credentials). ``endpoint``: the address of the token service, if it is not Google's.

        Raises InvalidArgument.
        """
        try:
            import google.auth.transport.requests  # noqa: F401, PLC0415  (an extra of its own)
        except ImportError:
            raise InvalidArgument("keys of Google need more: pip install 'versioned-metastore[gcs]'") from None
        if _BUCKET.fullmatch(bucket) is None:
            raise InvalidArgument(f"a bucket is 3 to 222 small letters, digits, dots and dashes, not {bucket[:80]!r}")
        super().__init__("gcs", properties)
        self._bucket, self._endpoint = bucket, endpoint or _STS
        self._identity: Any = None
        self._refreshing = Lock()

    def _scope(self, location: str, rights: Collection[str]) -> tuple[Rule, ...] | None:
        return rules(location, rights, self._bucket)

    def _make(self, scope: tuple[Rule, ...], principal: str) -> Made:
        from google.auth.exceptions import GoogleAuthError  # noqa: PLC0415
        from google.oauth2 import sts  # noqa: PLC0415

        try:
            request = _bounded()
            own, left = self._token(request)
            client: Any = sts.Client  # google-auth has no types here
            made = client(self._endpoint).exchange_token(
                request,
                _GRANT,
                own,
                _TOKEN,
                requested_token_type=_TOKEN,
                additional_options=_boundary(scope),
            )
        except GoogleAuthError as error:
            raise CannotVend(f"Google gave no token: {_said(error)}") from None
        # Google leaves expires_in out if the new token ends with the exchanged one
        life = min(left, float(made.get("expires_in") or left))
        until = SYSTEM.micros() // 1000 + int(life * 1000)
        return Made({"gcs.oauth2.token": str(made["access_token"]), GCS_ENDS: str(until)}, life)

    def _token(self, request: Callable[..., Any]) -> tuple[str, float]:
        """Return a token of the server's identity, and how long it lives (seconds). One thread refreshes it."""
        import google.auth  # noqa: PLC0415

        with self._refreshing:
            if self._identity is None:
                default: Any = google.auth.default
                self._identity, _ = default(scopes=[_SCOPE], request=request)
            if _left(self._identity) < _LEFT:
                self._identity.refresh(request)
            return str(self._identity.token), _left(self._identity)


def _left(identity: Any) -> float:
    """Return how long an identity's token still lives (seconds)."""
    if not identity.token or identity.expiry is None:
        return 0.0
    # google-auth's times are UTC without a zone
    return float(identity.expiry.replace(tzinfo=UTC).timestamp() - SYSTEM.micros() / 1e6)


def _boundary(scope: tuple[Rule, ...]) -> Any:
    """Return the boundary of these rules, as the token service reads it."""
    from google.auth.downscoped import (  # noqa: PLC0415
        AccessBoundaryRule,
        AvailabilityCondition,
        CredentialAccessBoundary,
    )

    condition: Any = AvailabilityCondition
    made: Any = AccessBoundaryRule
    whole: Any = CredentialAccessBoundary
    return whole([made(rule.resource, [rule.role], condition(rule.condition)) for rule in scope]).to_json()


def _bounded() -> Callable[..., Any]:
    """Return a transport of google-auth with short timeouts."""
    from google.auth.transport.requests import Request  # noqa: PLC0415

    transport: Any = Request()

    def call(url: str, method: str = "GET", body: Any = None, headers: Any = None, **rest: Any) -> Any:
        return transport(url, method, body, headers, **{**rest, "timeout": _TIMEOUT})

    return call


def _said(error: Exception) -> str:
    """Return the code of an error, or its class. The message may contain secrets."""
    found = _CODE.match(str(error.args[0])) if error.args else None
    return found[1] if found else type(error).__name__
