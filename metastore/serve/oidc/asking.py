"""Ask an issuer for its keys (OpenID Connect Discovery, RFC 7517), in bounded time and size.

Over https alone; http is for an issuer on this machine. No redirect is followed: the keys come from where the issuer's
own document says.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from metastore.errors import InvalidArgument
from metastore.plain.bodies import read_json
from metastore.serve.oidc.tokens import Key, key_of

__all__ = ["SECONDS", "Unusable", "check_issuer", "keys_of"]

SECONDS: Final = 5.0
"""How long both questions may take together."""
_MOST: Final = 256 << 10
"""How many bytes an answer may have."""
_HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity"}


class Unusable(Exception):
    """The issuer answers something else than it should."""


def check_issuer(issuer: str) -> None:
    """Raise InvalidArgument for what is not the URL of an issuer (Discovery, section 3)."""
    try:
        parts, usable = urlsplit(issuer), _is_usable(issuer, issuer)
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or "?" in issuer or "#" in issuer:
        raise InvalidArgument(
            "the issuer is the URL that its tokens have as iss: https://…, without a user, a query and a fragment; "
            f"http only on this machine; not {issuer[:80]!r}"
        )


async def keys_of(issuer: str) -> dict[str, Key]:
    """Return the keys of an issuer by their ids. Raises Unusable, TimeoutError, httpx.HTTPError."""
    local = issuer.startswith("http:")  # no proxy for a local issuer: the proxy would ask its own machine
    async with (
        asyncio.timeout(SECONDS),
        httpx.AsyncClient(follow_redirects=False, timeout=SECONDS, trust_env=not local) as client,
    ):
        said = await _json(client, f"{issuer.removesuffix('/')}/.well-known/openid-configuration")
        if said.get("issuer") != issuer:
            raise Unusable(f"the document says that it is of another issuer than {issuer}")
        place = said.get("jwks_uri")
        if not isinstance(place, str) or not _is_usable(place, issuer):
            raise Unusable("the document names no place of its keys that may be asked")
        listed = (await _json(client, place)).get("keys")
    keys: dict[str, Key] = {}
    for jwk in listed if isinstance(listed, list) else ():
        if (key := key_of(jwk)) is not None:
            keys.setdefault(key.jwk["kid"], key)
    if not keys:
        raise Unusable("the issuer has no key for signatures that this server can use")
    return keys


async def _json(client: httpx.AsyncClient, url: str) -> Mapping[str, Any]:
    body = b""
    async with client.stream("GET", url, headers=_HEADERS) as answer:
        if answer.status_code != 200:
            raise Unusable(f"{url} answers {answer.status_code}")
        async for part in answer.aiter_raw():
            body += part
            if len(body) > _MOST:
                raise Unusable(f"{url} answers more than {_MOST} bytes")
    try:
        value = read_json(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Unusable(f"{url} does not answer with a JSON object")
    return value


def _is_usable(url: str, issuer: str) -> bool:
    """Whether a URL may be asked: by https, or on this machine by http, if that is how the issuer is reached."""
    parts = urlsplit(url)
    if not parts.hostname or parts.username is not None or not url.isprintable() or " " in url:
        return False
    return parts.scheme == "https" or (
        parts.scheme == "http" and _is_loopback(parts.hostname) and urlsplit(issuer).scheme == "http"
    )


def _is_loopback(name: str) -> bool:
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
