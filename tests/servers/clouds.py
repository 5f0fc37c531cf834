"""The token services of Azure and of Google, as their documentation describes them, on the loopback interface.

Entra ID gives an access token to an application; the storage account gives a user delegation key for it; Google gives
an access token to a service account, and exchanges it for one with a boundary. It speaks TLS, because Azure's client
accepts nothing else. It keeps each request, so that a test compares it with the documented form.
"""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl, urlsplit
from xml.etree import ElementTree as ET

__all__ = ["ACCOUNT_KEY", "OBJECT", "TENANT", "Asked", "TokenServices"]

TENANT, OBJECT = "11111111-2222-3333-4444-555555555555", "99999999-8888-7777-6666-555555555555"
ACCOUNT_KEY = base64.b64encode(b"the user delegation key").decode()


@dataclass
class Asked:
    """A request."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: str

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body))


@dataclass
class TokenServices:
    """The services. ``refuses``: answer each request for a key with this status and text; ``waits``: until then."""

    certificate: tuple[Path, Path]
    asked: list[Asked] = field(default_factory=list)
    refuses: tuple[int, str] | None = None
    waits: threading.Event | None = None
    life: int = 3600
    """How long a token of Google's identity lives (seconds)."""
    says_life: bool = True
    given: list[str] = field(default_factory=list)
    """The tokens of the services' identities, which no client may get."""

    def __post_init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://localhost:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.waits is not None:
            self.waits.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def of_keys(self) -> list[Asked]:
        """Return the requests for a key of a client."""
        return [one for one in self.asked if one.path == "/v1/token" or one.query.get("comp") == "userdelegationkey"]

    def answered(self, asked: Asked) -> tuple[int, str]:
        self.asked.append(asked)
        if asked.path.endswith("/.well-known/openid-configuration"):
            tenant = asked.path.split("/")[1]
            places = {"authorization_endpoint": "authorize", "token_endpoint": "token"}
            there = {name: f"{self.url}/{tenant}/oauth2/v2.0/{at}" for name, at in places.items()}
            return 200, json.dumps({"issuer": f"{self.url}/{tenant}/v2.0", **there})
        if asked.path in (f"/{TENANT}/oauth2/v2.0/token", "/of-a-service-account"):
            token = secrets.token_urlsafe(16)
            self.given.append(token)
            return 200, json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": self.life})
        if self.waits is not None:
            self.waits.wait(60)
        if self.refuses is not None:
            return self.refuses
        return self._delegation_key(asked) if asked.query.get("comp") == "userdelegationkey" else self._exchanged(asked)

    def _delegation_key(self, asked: Asked) -> tuple[int, str]:
        """https://learn.microsoft.com/rest/api/storageservices/get-user-delegation-key."""
        wanted = {one.tag: one.text or "" for one in ET.fromstring(asked.body)}
        if asked.headers.get("authorization") not in [f"Bearer {token}" for token in self.given]:
            return 403, "<Error><Code>AuthenticationFailed</Code></Error>"
        fields = {
            "SignedOid": OBJECT,
            "SignedTid": TENANT,
            "SignedStart": wanted["Start"],
            "SignedExpiry": wanted["Expiry"],
            "SignedService": "b",
            "SignedVersion": asked.headers["x-ms-version"],
            "Value": ACCOUNT_KEY,
        }
        said = "".join(f"<{name}>{value}</{name}>" for name, value in fields.items())
        return 200, f'<?xml version="1.0" encoding="utf-8"?><UserDelegationKey>{said}</UserDelegationKey>'

    def _exchanged(self, asked: Asked) -> tuple[int, str]:
        """https://cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token."""
        if asked.form.get("subject_token") not in self.given:
            return 400, json.dumps({"error": "invalid_grant"})
        life = {"expires_in": self.life} if self.says_life else {}
        kind = "urn:ietf:params:oauth:token-type:access_token"
        token = f"downscoped-{secrets.token_urlsafe(16)}"
        return 200, json.dumps({"access_token": token, "issued_token_type": kind, "token_type": "Bearer", **life})


def _handler(services: TokenServices) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            split = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, said = services.answered(Asked(split.path, dict(parse_qsl(split.query)), headers, body))
            self.send_response(status)
            for name, value in (
                ("Content-Type", "application/xml" if said.startswith("<") else "application/json"),
                ("Content-Length", str(len(said.encode()))),
                ("Date", datetime.fromtimestamp(time.time(), UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said.encode())

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing."""

    return Handler
