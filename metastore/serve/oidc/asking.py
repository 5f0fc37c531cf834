"""Ask an issuer for its document, its keys and its tokens (OpenID Connect Discovery), in bounded time and size.

Only over https; http is for an issuer on this machine. No redirect is followed: keys and tokens come only from the
addresses in the issuer's own document.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import httpx

from metastore.errors import InvalidArgument
from metastore.plain.bodies import read_json
from metastore.serve.oidc.tokens import Key, key_of

__all__ = [
    "SECONDS",
    "Unusable",
    "answered",
    "check_issuer",
    "document_of",
    "granted",
    "is_base",
    "keys_of",
    "place_of",
]

T = TypeVar("T")

SECONDS: Final = 5.0
"""How long any request may take, and both requests for the keys together (seconds)."""
_MOST: Final = 256 << 10
"""The largest answer (bytes)."""
_HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity"}


class Unusable(Exception):
    """The issuer's answer cannot be used."""


def answered(question: Coroutine[Any, Any, T]) -> T:
    """Run a question to an issuer, in a thread, and return its result. Raises the errors of the question.

    ``asyncio.run`` would wait for a name resolver that hangs, long after the question should have ended.
    """
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(question)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def check_issuer(issuer: str) -> None:
    """Raise InvalidArgument for a text that is not the URL of an issuer (Discovery, section 3)."""
    if not is_base(issuer):
        raise InvalidArgument(
            "the issuer is the URL that its tokens have as iss: https://…, without a user, a query and a fragment; "
            f"http only on this machine; not {issuer[:80]!r}"
        )


def is_base(url: str) -> bool:
    """Whether other addresses may begin with a URL: https (http on this machine), without a query and a fragment."""
    return _is_usable(url, url) and "?" not in url and "#" not in url


async def document_of(issuer: str) -> Mapping[str, Any]:
    """Return the discovery document of an issuer. Raises Unusable, TimeoutError, httpx.HTTPError."""
    async with _asking(issuer) as client:
        return await _document(client, issuer)


async def keys_of(issuer: str) -> dict[str, Key]:
    """Return the keys of an issuer by their ids. Raises Unusable, TimeoutError, httpx.HTTPError."""
    async with _asking(issuer) as client:
        place = place_of(await _document(client, issuer), "jwks_uri", issuer)
        listed = (await _json(client, place)).get("keys")
    keys: dict[str, Key] = {}
    for jwk in listed if isinstance(listed, list) else ():
        if (key := key_of(jwk)) is not None:
            keys.setdefault(key.jwk["kid"], key)
    if not keys:
        raise Unusable("the issuer has no key for signatures that this server can use")
    return keys


async def granted(
    issuer: str, place: str, form: Mapping[str, str], account: tuple[str, str] | None
) -> Mapping[str, Any]:
    """Return the token endpoint's answer to a form: tokens, or an ``error`` (RFC 6749, sections 5.1 and 5.2).

    ``account``: the name and the secret for Basic authentication. Raises Unusable, TimeoutError, httpx.HTTPError.
    """
    async with _asking(issuer) as client:
        return await _json(client, place, form, account)


def place_of(document: Mapping[str, Any], name: str, issuer: str) -> str:
    """Return an address from an issuer's document. Raises Unusable."""
    place = document.get(name)
    if not isinstance(place, str) or not _is_usable(place, issuer):
        raise Unusable(f"the document has no {name} that this server may call")
    return place


@asynccontextmanager
async def _asking(issuer: str) -> AsyncIterator[httpx.AsyncClient]:
    local = issuer.startswith("http:")  # no proxy for a local issuer: the proxy would ask its own machine
    async with (
        asyncio.timeout(SECONDS),
        httpx.AsyncClient(follow_redirects=False, timeout=SECONDS, trust_env=not local) as client,
    ):
        yield client


async def _document(client: httpx.AsyncClient, issuer: str) -> Mapping[str, Any]:
    said = await _json(client, f"{issuer.removesuffix('/')}/.well-known/openid-configuration")
    if said.get("issuer") != issuer:
        raise Unusable(f"the document says that its issuer is not {issuer}")
    return said


async def _json(
    client: httpx.AsyncClient,
    url: str,
    form: Mapping[str, str] | None = None,
    account: tuple[str, str] | None = None,
) -> Mapping[str, Any]:
    """Return the JSON object that a URL answers. For a form (POST), a refusal (400, 401) may have the object, too."""
    body, method = b"", "GET" if form is None else "POST"
    auth = None if account is None else httpx.BasicAuth(*account)
    async with client.stream(method, url, headers=_HEADERS, data=form, auth=auth) as answer:
        if answer.status_code != 200 and (form is None or answer.status_code not in (400, 401)):
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
    """Whether the server may call a URL: by https, or by http on this machine if the issuer is reached that way."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  (raises for one that is not a number)
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        return False
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
