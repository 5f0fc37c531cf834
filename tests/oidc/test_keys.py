"""When an issuer is asked for its keys, what it may answer, and what goes on while it does not."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest

import metastore as ms
from metastore.serve import Principals
from metastore.serve.oidc import Issuer, asking
from metastore.serve.oidc import issuer as issuing
from metastore.serve.oidc.tokens import claims_of, key_of
from metastore.serve.principals import IssuerAway, NotAuthenticated
from tests.iceberg.server import served
from tests.oidc.issuer import AUDIENCE, DISCOVERY, MovedClock, OwnIssuer, public_jwk, send
from tests.servers.process import wait_until


@pytest.fixture
def own() -> Iterator[OwnIssuer]:
    with OwnIssuer() as own:
        yield own


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
def issuer(own: OwnIssuer, clock: MovedClock) -> Issuer:
    return Issuer(own.url, AUDIENCE, clock=clock)


def subject(issuer: Issuer, token: str) -> str:
    """Return the user of a token, as a request finds it out."""

    async def found() -> str:
        await issuer.ready(token)
        return issuer.principal(token).name

    return asyncio.run(found())


def away(handler: BaseHTTPRequestHandler) -> None:
    send(handler, 503, b"")


def test_an_unknown_key_asks_the_issuer_once_in_a_while(own: OwnIssuer, issuer: Issuer, clock: MovedClock) -> None:
    assert subject(issuer, own.token()) == "4711"
    assert own.asked == [DISCOVERY, "/keys"]
    own.show("second")
    for n in range(3):
        with pytest.raises(NotAuthenticated):
            subject(issuer, own.token(key="second", header={"kid": f"second-{n}"}))
    assert len(own.asked) == 2
    clock.move(31)
    assert subject(issuer, own.token(key="second")) == "4711"
    assert len(own.asked) == 4
    with pytest.raises(NotAuthenticated):  # the issuer took its key back, although the token was known
        subject(issuer, own.token())


def test_a_key_that_the_issuer_takes_back_ends_its_tokens(own: OwnIssuer, issuer: Issuer, clock: MovedClock) -> None:
    token = own.token(exp=int(time.time()) + 3600)
    assert subject(issuer, token) == "4711"
    own.show("second")
    clock.move(301)
    assert subject(issuer, token) == "4711"  # the issuer is asked in the background
    assert wait_until(lambda: issuer._keys.get("first") is None, 10.0)
    with pytest.raises(NotAuthenticated):
        subject(issuer, token)


def test_all_requests_share_one_question(own: OwnIssuer, issuer: Issuer, clock: MovedClock) -> None:
    known = own.token()
    subject(issuer, known)
    own.show("first", "second")
    clock.move(31)
    arrived, go_on = threading.Event(), threading.Event()

    def slow(handler: BaseHTTPRequestHandler) -> None:
        arrived.set()
        assert go_on.wait(20.0)
        send(handler, 200, json.dumps(own.json_of(DISCOVERY)).encode())

    async def many() -> list[str]:
        own.answers[DISCOVERY] = slow
        waiting = [asyncio.create_task(issuer.ready(own.token(str(n), key="second"))) for n in range(20)]
        assert await asyncio.to_thread(arrived.wait, 20.0)
        await issuer.ready(known)  # the loop goes on, and a known key waits for nothing
        assert issuer.principal(known).name == "4711"
        waiting[0].cancel()  # a client that goes away
        go_on.set()
        await asyncio.gather(*waiting[1:])
        return [issuer.principal(own.token(str(n), key="second")).name for n in range(1, 20)]

    assert asyncio.run(many()) == [str(n) for n in range(1, 20)]
    assert own.asked.count("/keys") == 2


def test_a_token_is_verified_once_and_known_until_it_ends(
    own: OwnIssuer, issuer: Issuer, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[str] = []

    def noted(token: str, *more: Any) -> dict[str, Any]:
        verified.append(token)
        return claims_of(token, *more)

    monkeypatch.setattr(issuing, "claims_of", noted)
    token = own.token()
    assert [subject(issuer, token) for _ in range(3)] == ["4711"] * 3
    assert verified == [token]
    clock.move(331)
    with pytest.raises(NotAuthenticated, match="is over"):
        subject(issuer, token)


def _redirect(handler: BaseHTTPRequestHandler) -> None:
    send(handler, 302, b"", Location="/realms/lake/elsewhere")


def _answering(body: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    return lambda handler: send(handler, 200, body)


def _keys_elsewhere(place: str) -> Callable[[OwnIssuer], None]:
    def prepare(own: OwnIssuer) -> None:
        own.answers[DISCOVERY] = _answering(f'{{"issuer": "{own.url}", "jwks_uri": "{place}"}}'.encode())

    return prepare


WRONG: dict[str, Callable[[OwnIssuer], None]] = {
    "garbage": lambda own: own.answers.update({"/keys": _answering(b"<html>")}),
    "nested": lambda own: own.answers.update({DISCOVERY: _answering(b'{"a":' * 20_000)}),
    "a list": lambda own: own.answers.update({"/keys": _answering(b"[]")}),
    "no keys": lambda own: own.answers.update({"/keys": _answering(b'{"keys": [1, {}, {"kid": "first", "kty": []}]}')}),
    "very much": lambda own: own.answers.update({"/keys": _keys_of(own, more=b" " * (1 << 20))}),
    "elsewhere": lambda own: own.answers.update({"/keys": _redirect, "/elsewhere": _keys_of(own)}),
    "another issuer": lambda own: own.answers.update(
        {DISCOVERY: _answering(f'{{"issuer": "https://x.example", "jwks_uri": "{own.url}/keys"}}'.encode())}
    ),
    "a file": _keys_elsewhere("file:///etc/passwd"),
    "keys without TLS": _keys_elsewhere("http://keys.example/keys"),
    "away": lambda own: own.answers.update({DISCOVERY: away}),
    "secret keys": lambda own: own.answers.update(
        {"/keys": _answering(b'{"keys": [{"kid": "first", "kty": "oct", "k": "c2VjcmV0"}]}')}
    ),
}


def _keys_of(own: OwnIssuer, more: bytes = b"") -> Callable[[BaseHTTPRequestHandler], None]:
    return _answering(json.dumps({"keys": own.keys}).encode() + more)


def test_an_answer_that_cannot_be_used_refuses_nobody_and_lets_nobody_in(
    own: OwnIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, asked = asking._json, list[str]()

    async def noted(client: httpx.AsyncClient, url: str) -> Any:
        asked.append(url)
        return await ask(client, url)

    monkeypatch.setattr(asking, "_json", noted)
    for name, prepare in WRONG.items():
        own.answers.clear()
        prepare(own)
        with pytest.raises(IssuerAway):
            print(name, subject(Issuer(own.url, AUDIENCE), own.token()))
    assert f"{own.url}/keys" in asked
    assert [url for url in asked if not url.startswith("http://127.0.0.1:")] == []


def test_without_an_answer_known_keys_go_on_and_others_are_not_refused(
    own: OwnIssuer, issuer: Issuer, clock: MovedClock, sqlite_url: str, tmp_path: Path
) -> None:
    assert subject(issuer, own.token()) == "4711"
    own.answers[DISCOVERY] = away
    clock.move(301)
    with pytest.raises(IssuerAway):
        subject(issuer, own.token(key="second"))
    assert subject(issuer, own.token("new", exp=int(time.time()) + 900)) == "new"
    with served(sqlite_url, tmp_path / "w", Principals(issuer=Issuer(own.url, AUDIENCE))) as address:
        base = address.removesuffix("/iceberg")
        for path in ("/iceberg/v1/lake.ice/namespaces", "/api/metalakes", "/console/stream", "/console/"):
            answer = httpx.get(f"{base}{path}", headers={"Authorization": f"Bearer {own.token()}"})
            assert (answer.status_code, "retry-after" in answer.headers) == (503, True), path


def test_an_answer_takes_no_longer_than_it_may(own: OwnIssuer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, and the whole does not."""
    over = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
        while not over.wait(0.02):
            handler.wfile.write(b" ")

    own.answers[DISCOVERY] = drip
    monkeypatch.setattr(asking, "SECONDS", 0.2)
    try:
        issuer = Issuer(own.url, AUDIENCE)
        with pytest.raises(IssuerAway):
            subject(issuer, own.token())
        assert issuer._keys._question is None
    finally:
        over.set()


@pytest.mark.parametrize(
    "url",
    [
        "http://idp.example",
        "idp.example",
        "https://",
        "https://a:b@idp.example",
        "https://idp.example?x=1",
        "https://idp.example/#",
        "https://idp.example/\n",
        "http://127.0.0.1.example/",
        "http://[::1/",
        "ftp://127.0.0.1/",
    ],
)
def test_an_issuer_is_reached_by_tls(url: str) -> None:
    with pytest.raises(ms.InvalidArgument, match="https"):
        Issuer(url, AUDIENCE)


def test_a_small_or_private_key_of_an_issuer_is_not_used() -> None:
    good = {**public_jwk("first"), "kid": "k"}
    assert key_of(good) is not None
    wrong: list[dict[str, Any]] = [{"use": "enc"}, {"key_ops": ["encrypt"]}, {"alg": "HS256"}, {"kid": 1}]
    wrong += [{"d": "AA"}, {"crv": "P-384"}, {"key_ops": 7}]
    assert [key_of({**good, **one}) for one in wrong] == [None] * len(wrong)
    small = {**public_jwk("rsa"), "kid": "k", "n": "u" * 171}
    assert key_of(small) is None
