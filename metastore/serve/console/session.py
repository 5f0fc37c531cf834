"""Sessions of browsers: a cookie that replaces a token, and that any server with the same tokens can check.

For a token of a file, a cookie holds only a proof: a MAC of the session's end, keyed with the token's digest. It is
checked at each request, so a token that is taken out of the file ends its sessions at every server. Somebody who steals
such a cookie cannot use it for the API, nor beyond its end. Tokens of an OIDC issuer are in no file. For them, the
cookie holds the token itself, which is verified at each request.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from threading import Lock
from typing import Final

from cachetools import LRUCache

from metastore.clock import SYSTEM
from metastore.serve.principals import NotAuthenticated, Principal, Principals

__all__ = ["COOKIE", "LIFE", "Sessions", "TooLong"]

COOKIE: Final = "metastore_console"
LIFE: Final = 12 * 3600
"""How long a session lasts (seconds)."""
_MOST: Final = 10_000
"""How many proofs are remembered, with the digest of the token that fits."""
_LONGEST: Final = 3800
"""How many characters of a token a cookie can hold: browsers take 4,096 bytes with the name."""


class TooLong(NotAuthenticated):
    """An issuer's token is valid, but too long for a cookie."""


class Sessions:
    """Sign a browser in, and find out who it is at each request."""

    def __init__(self, principals: Principals) -> None:
        self.principals = principals
        self._known: LRUCache[tuple[str, str], bytes] = LRUCache(_MOST)
        self._lock = Lock()

    @property
    def has_form(self) -> bool:
        """Whether the console has a form to sign in. With a proxy's header, the proxy signs users in."""
        return self.principals.authenticates and self.principals.header is None

    def cookie(self, token: str) -> str:
        """Return the cookie of a new session with a valid token. Raises TooLong."""
        end = str(_now() + LIFE)
        digest = _digest_of(token)
        if digest in self.principals.tokens:
            return f"1.{end}.{_proof(digest, end)}"
        if len(token) > _LONGEST:
            raise TooLong(
                f"the token has {len(token)} characters; a cookie holds {_LONGEST}: let the issuer write less"
            )
        return f"3.{end}.{token}"  # unescaped: a cookie may have all characters of a JWT

    async def ready(self, headers: Mapping[str, str], cookie: str | None) -> None:
        """Wait until ``principal`` can answer, if an issuer must be asked. Raises NotAuthenticated."""
        if self._is_of_cookie(headers, cookie) and cookie is not None:
            version, _, held = _parts(cookie)
            headers = _bearing(held) if version == "3" else {}
        await self.principals.ready(headers)

    def principal(self, headers: Mapping[str, str], cookie: str | None) -> Principal:
        """Return the principal of a request, without waiting. Raises NotAuthenticated, IssuerAway, ValueError."""
        if self._is_of_cookie(headers, cookie) and cookie is not None:
            return self._of_cookie(cookie)
        return self.principals.principal(headers)

    def _is_of_cookie(self, headers: Mapping[str, str], cookie: str | None) -> bool:
        return self.has_form and bool(cookie) and "authorization" not in headers

    def _of_cookie(self, cookie: str) -> Principal:
        version, end, proof = _parts(cookie)
        if version == "1":
            user = self.principals.tokens.get(self._digest(end, proof))
            if user is not None:
                return Principal(user)
            raise NotAuthenticated("the token of this session is not valid any more; sign in again")
        if version == "3":
            return self.principals.principal(_bearing(proof))
        raise NotAuthenticated("the cookie is of another version; sign in again")

    def _digest(self, end: str, proof: str) -> bytes:
        """Return the digest of the token that a cookie proves; empty if no token fits."""
        with self._lock:
            known = self._known.get((end, proof))
        if known is None:
            given = proof.encode()
            tokens = self.principals.tokens
            known = next((one for one in tokens if hmac.compare_digest(_proof(one, end).encode(), given)), b"")
            if known:
                with self._lock:
                    self._known[end, proof] = known
        return known


def _parts(cookie: str) -> tuple[str, str, str]:
    """Return the version of a cookie, its end, and the rest. Raises NotAuthenticated if it is over or malformed."""
    version, _, rest = cookie.partition(".")
    end, _, proof = rest.partition(".")
    if not end.isascii() or not end.isdigit() or len(end) > 12 or int(end) <= _now():
        raise NotAuthenticated("the session is over; sign in again")
    return version, end, proof


def _bearing(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def _proof(digest: bytes, end: str) -> str:
    return hmac.new(digest, f"metastore console {end}".encode(), hashlib.sha256).hexdigest()


def _digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _now() -> int:
    return SYSTEM.micros() // 1_000_000
