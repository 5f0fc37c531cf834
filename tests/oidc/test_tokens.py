"""Which tokens of an issuer are valid: hostile ones are refused by both protocols, and no line of a log has them."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from metastore.serve import Principals, tokens_of
from metastore.serve.oidc import Issuer
from tests.iceberg.server import served
from tests.oidc.issuer import AUDIENCE, OwnIssuer, certificate, compact, public_jwk, public_pem

HOSTILE: dict[str, Callable[[OwnIssuer], str]] = {
    "not signed": lambda own: own.token(key=None, header={"alg": "none", "kid": "first"}),
    "signed by the public key": lambda own: own.token(key=public_pem("rsa"), header={"alg": "HS256", "kid": "rsa"}),
    "signed by another key": lambda own: own.token(key="other", header={"kid": "first"}),
    "the key is for something else": lambda own: own.token(key="other", header={"kid": "enc"}),
    "of a key that is not there": lambda own: own.token(key="other"),
    "an algorithm that the key is not for": lambda own: own.token(key="rsa", header={"alg": "RS512"}),
    "changed after it was signed": lambda own: _changed(own.token()),
    "no key": lambda own: own.token(header={"kid": None}),
    "its own key": lambda own: own.token(key="other", header={"kid": "first", "jwk": public_jwk("other")}),
    "keys elsewhere": lambda own: own.token(key="other", header={"kid": "first", "jku": f"{own.url}/stolen"}),
    "a certificate elsewhere": lambda own: own.token(key="other", header={"kid": "first", "x5u": f"{own.url}/stolen"}),
    "its own certificate": lambda own: own.token(key="other", header={"kid": "first", "x5c": [certificate("other")]}),
    "an unknown extension": lambda own: own.token(header={"crit": ["x"], "x": 1}),
    "over": lambda own: own.token(exp=int(time.time()) - 40, iat=int(time.time()) - 100),
    "without an end": lambda own: own.token(exp=None),
    "an end that never comes": lambda own: own.token(exp=float("inf")),
    "an end that is not a time": lambda own: own.token(exp="2099"),
    "not valid yet": lambda own: own.token(nbf=int(time.time()) + 120),
    "made in the future": lambda own: own.token(iat=int(time.time()) + 120),
    "for another audience": lambda own: own.token(aud=["https://mail.example", "account"]),
    "for nobody": lambda own: own.token(aud=None),
    "for a part of the audience": lambda own: own.token(aud=AUDIENCE[:-1]),
    "of another issuer": lambda own: own.token(iss=f"{own.url}/"),
    "an ID token": lambda own: own.token(header={"typ": "JWT"}, nonce="n", scope="openid"),
    "an ID token of Keycloak": lambda own: own.token(header={"typ": "JWT"}, typ="ID", scope="openid"),
    "an ID token without any sign": lambda own: own.token(header={"typ": "JWT"}),
    "a token to log out": lambda own: own.token(header={"typ": "logout+jwt"}, scope="lake"),
    "without a subject": lambda own: own.token(sub=""),
    "without the user's claim": lambda own: own.token(preferred_username=None),
    "a user's claim that is a list": lambda own: own.token(preferred_username=["ann"]),
    "broken base64": lambda own: "!" + own.token()[1:],
    "base64 of another length": lambda own: "a" + own.token(),
    "no JSON": lambda own: "bm9uZQ." + own.token().partition(".")[2],
    "JSON without an end": lambda own: "W1tb" * 2000 + "." + own.token().partition(".")[2],
    "claims that are none": lambda own: compact({"alg": "ES256", "kid": "first"}, [1], "first"),
    "two parts": lambda own: own.token().rpartition(".")[0],
    "a huge one": lambda own: own.token(groups=["x" * 100] * 150),
    "not a token": lambda _: "é",
}
GOOD: dict[str, Callable[[OwnIssuer], str]] = {
    "as RFC 9068 says": lambda own: own.token(),
    "of RSA": lambda own: own.token(key="rsa"),
    "of Keycloak": lambda own: own.token(header={"typ": "JWT"}, typ="Bearer", aud=["account", AUDIENCE]),
    "an older one": lambda own: own.token(header={"typ": "JWT"}, scope="lake"),
    "clocks that are apart": lambda own: own.token(exp=int(time.time()) - 10, iat=int(time.time()) + 10),
}


def _changed(token: str) -> str:
    head, _, signature = token.split(".")
    return ".".join([head, compact({}, {"sub": "root"}, None).split(".")[1], signature])


@pytest.fixture
def own() -> Iterator[OwnIssuer]:
    with OwnIssuer() as own:
        yield own


def _issuer(own: OwnIssuer, **more: Any) -> Issuer:
    return Issuer(own.url, AUDIENCE, user_claim="preferred_username", **more)


def test_hostile_tokens_are_refused(
    own: OwnIssuer, sqlite_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "tokens").write_text("robot static-token\n")
    signed = own.token
    own.token = lambda *of, **said: signed(*of, **{"preferred_username": "ann", **said})  # type: ignore[method-assign]
    principals = Principals(tokens_of(tmp_path / "tokens"), issuer=_issuer(own))
    with served(sqlite_url, tmp_path / "w", principals) as address, httpx.Client() as client:
        iceberg, gravitino = f"{address}/v1/lake.ice/namespaces", address.replace("/iceberg", "/api/metalakes")

        def ask(place: str, *tokens: str) -> httpx.Response:
            return client.get(place, headers=[(b"authorization", f"Bearer {one}".encode()) for one in tokens])

        for name, made in HOSTILE.items():
            token = made(own)
            caplog.clear()
            for place in (iceberg, gravitino):
                answer = ask(place, token)
                assert answer.status_code == 401, (name, place, answer.text)
                assert not any(part in answer.text for part in token.split(".") if part), name
            lines = [json.loads(one.getMessage()) for one in caplog.records if one.name == "metastore.audit"]
            assert [(one["outcome"], one["user"]) for one in lines] == [("refused", None)] * 2, name
            assert all(one["reason"] for one in lines), name
            assert not any(part in caplog.text for part in token.split(".") if len(part) > 4), name
        assert not any("stolen" in path for path in own.asked)
        for name, made in GOOD.items():
            token = made(own)
            caplog.clear()
            for place in (iceberg, gravitino):
                assert ask(place, token).status_code == 200, name
            (line,) = [json.loads(one.getMessage()) for one in caplog.records if one.name == "metastore.audit"]
            assert (line["outcome"], line["user"]) == ("signed_in", "ann")
            assert (line["external_id"], line["request_id"] != "") == (f"{own.url}#4711", True)
            assert token.split(".")[2] not in caplog.text
        assert ask(iceberg, "static-token").status_code == 200  # the tokens of a file are valid beside them
        caplog.clear()
        assert ask(iceberg, own.token(), own.token()).status_code == 400
        assert ask(iceberg).status_code == 401
        assert [one.name for one in caplog.records].count("metastore.audit") == 2
