"""A browser without a window, and servers whose console has a button that leads to the issuer."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx

from metastore.serve import Principals
from metastore.serve.oidc import Client, Issuer
from tests.oidc.issuer import AUDIENCE, OwnIssuer

__all__ = ["PUBLIC", "SECRET", "Browser", "principals"]

PUBLIC = "http://127.0.0.1:9/lake"
"""Where browsers reach the servers: a proxy, which the tests replace."""
SECRET = "secret-of-console"


class Browser:
    """A browser, which knows the servers by their public address."""

    def __init__(self, address: str) -> None:
        self.base = address.replace("/iceberg", "/console/")
        self.client = httpx.Client(
            timeout=30.0, verify=False, limits=httpx.Limits(max_keepalive_connections=0)
        )  # none stays open

    def get(self, page: str) -> httpx.Response:
        return self.client.get(f"{self.base}{page}")

    def begun(self, following: str = "") -> dict[str, str]:
        """Begin a sign-in; return what the browser asks the issuer."""
        answer = self.get(f"login?{urlencode({'next': following})}")
        assert answer.status_code == 303, answer.text
        return dict(parse_qsl(urlsplit(answer.headers["location"]).query))

    def at_issuer(self, own: OwnIssuer, asked: dict[str, str]) -> dict[str, str]:
        """Sign in there; return what the issuer lets the browser take back."""
        place = self.client.get(f"{own.url}/authorize", params=asked).headers["location"]
        assert place.startswith(f"{PUBLIC}/console/callback?")
        return dict(parse_qsl(urlsplit(place).query))

    def back(self, answer: dict[str, str] | str) -> httpx.Response:
        return self.get(f"callback?{answer if isinstance(answer, str) else urlencode(answer)}")

    @property
    def is_in(self) -> bool:
        return self.get("./").status_code == 200


def principals(own: OwnIssuer, public: str = PUBLIC, secret: str | None = SECRET, **more: Any) -> Principals:
    client = Client("console" if secret else "page", public, secret, "lake")
    return Principals(issuer=Issuer(own.url, AUDIENCE, client=client, **more))
