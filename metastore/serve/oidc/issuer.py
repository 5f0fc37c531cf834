"""Find the owner of an access token. A verified token is known by its digest until it ends, or its key does."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Final, NamedTuple

from cachetools import LRUCache

from metastore.clock import SYSTEM, Clock
from metastore.errors import InvalidArgument
from metastore.serve.oidc.asking import check_issuer, keys_of
from metastore.serve.oidc.code import Client, CodeFlow
from metastore.serve.oidc.keys import Keys
from metastore.serve.oidc.tokens import Key, Wanted, check_id_token, claims_of, groups_of, header_of
from metastore.serve.principals import Principal

__all__ = ["Issuer"]

_MOST: Final = 10_000
"""How many tokens are known at once."""


class _Known(NamedTuple):
    principal: Principal
    end: float
    kid: str
    key: Key


class Issuer:
    """An issuer of OpenID Connect, whose access tokens for ``audience`` say who makes a request.

    ``url``: the value of ``iss`` in its tokens. ``user_claim``: the claim with the user's name. The user's identity,
    whatever the name, is ``URL#sub``: the external id of the principal. ``groups_claim``: the claim with the user's
    groups, or a path to it, with a slash in front; None: tokens say nothing about groups. ``client``: the console's
    client at the issuer; None: no button leads there.
    """

    def __init__(
        self,
        url: str,
        audience: str,
        *,
        user_claim: str = "sub",
        groups_claim: str | None = None,
        client: Client | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        """Raises InvalidArgument. The issuer is asked when the first token comes."""
        check_issuer(url)
        if not audience or not user_claim or groups_claim == "":
            raise InvalidArgument("an issuer's audience and the names of its claims must not be empty")
        self.url = url
        self.code_flow = None if client is None else CodeFlow(self, client, clock=clock)
        self._wanted = Wanted(url, audience, user_claim, groups_claim)
        self._clock = clock
        self._keys = Keys(partial(keys_of, url), clock)
        self._known: LRUCache[bytes, _Known] = LRUCache(_MOST)
        self._lock = Lock()

    async def ready(self, token: str) -> None:
        """Get the key of a token if it is not known, because ``principal`` does not wait. Raises NotAuthenticated."""
        known = self._of(_digest(token))
        await self._keys.ready(header_of(token).kid if known is None else known.kid)

    def principal(self, token: str) -> Principal:
        """Return the owner of a token. Raises NotAuthenticated, IssuerAway."""
        digest = _digest(token)
        known, now = self._of(digest), self._clock.micros() / 1_000_000
        if known is not None and now < known.end and self._keys.get(known.kid) is known.key:
            return known.principal
        header = header_of(token)
        key = self._keys.key(header.kid)
        claims = claims_of(token, header, key, self._wanted, now)
        who = f"{self._wanted.issuer}#{claims['sub']}"
        principal = Principal(claims[self._wanted.user_claim], who, groups_of(claims, self._wanted))
        with self._lock:
            self._known[digest] = _Known(principal, claims["exp"], header.kid, key)
        return replace(principal, signs_in=known is None)

    async def check_id_token(self, token: str, client: str, nonce: str) -> None:
        """Check the ID token that a client got for the sign-in with this nonce. Raises NotAuthenticated, IssuerAway."""
        header = header_of(token)
        await self._keys.ready(header.kid)
        wanted = self._wanted._replace(audience=client)
        check_id_token(token, header, self._keys.key(header.kid), wanted, nonce, self._clock.micros() / 1_000_000)

    def _of(self, digest: bytes) -> _Known | None:
        with self._lock:
            return self._known.get(digest)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
