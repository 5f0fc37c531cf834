"""An issuer of OpenID Connect on the loopback interface, with keys of its own, and a clock that tests move."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlencode

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from jwt.utils import der_to_raw_signature

from metastore.clock import Clock

__all__ = ["AUDIENCE", "MovedClock", "OwnIssuer", "certificate", "compact", "private_key", "public_pem"]

AUDIENCE = "https://lake.example"
DISCOVERY = "/.well-known/openid-configuration"


class MovedClock(Clock):
    """A clock that is ahead of the system's by as much as a test says."""

    def __init__(self) -> None:
        self.by = [0.0]

    def move(self, seconds: float) -> None:
        self.by[0] += seconds

    def monotonic(self) -> float:
        return super().monotonic() + self.by[0]

    def micros(self) -> int:
        return super().micros() + int(self.by[0] * 1_000_000)


@cache
def private_key(name: str) -> Any:
    """Return the key of a name: of RSA if it begins with ``rsa``."""
    return rsa.generate_private_key(65537, 2048) if name.startswith("rsa") else ec.generate_private_key(ec.SECP256R1())


def public_pem(name: str) -> bytes:
    made: bytes = private_key(name).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return made


def public_jwk(name: str) -> dict[str, Any]:
    algorithm: Any = RSAAlgorithm if name.startswith("rsa") else ECAlgorithm
    made: dict[str, Any] = algorithm.to_jwk(private_key(name).public_key(), as_dict=True)
    return made


def certificate(name: str) -> str:
    """Return a certificate that the owner of a key signed itself, as ``x5c`` has it."""
    of = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    begin = datetime.now(UTC)
    made = x509.CertificateBuilder(of, of, private_key(name).public_key(), 1, begin, begin + timedelta(1))
    return base64.b64encode(made.sign(private_key(name), hashes.SHA256()).public_bytes(Encoding.DER)).decode()


def compact(header: Mapping[str, Any], claims: object, key: str | bytes | None) -> str:
    """Return a token; ``key``: the name of a key, a secret of HMAC, or None: it is not signed."""
    numbers = json.dumps(claims).replace("Infinity", "1e400")  # a number of JSON that no float can hold
    said = ".".join([_text(json.dumps(header).encode()), _text(numbers.encode())])
    if key is None:
        signature = b""
    elif isinstance(key, bytes):
        signature = hmac.digest(key, said.encode(), hashlib.sha256)
    elif key.startswith("rsa"):
        signature = private_key(key).sign(
            said.encode(), padding.PKCS1v15(), hashes.SHA512() if header["alg"] == "RS512" else hashes.SHA256()
        )
    else:
        signature = der_to_raw_signature(
            private_key(key).sign(said.encode(), ec.ECDSA(hashes.SHA256())), ec.SECP256R1()
        )
    return f"{said}.{_text(signature)}"


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


class OwnIssuer:
    """The issuer. ``keys``: the set that it shows; ``answers``: what it answers at a path instead; ``asked``: paths."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = [
            {**public_jwk("first"), "kid": "first", "use": "sig"},
            {**public_jwk("rsa"), "kid": "rsa", "use": "sig", "alg": "RS256"},
            {**public_jwk("other"), "kid": "enc", "use": "enc"},
        ]
        self.asked: list[str] = []
        self.answers: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {}
        self.clients = {"etl": "secret-of-etl", "console": "secret-of-console", "page": ""}
        self.says: dict[str, Any] = {}
        """What its document has besides."""
        self.life = 300
        self.ahead = 0.0
        """How far its clock is ahead (seconds)."""
        self.user: dict[str, Any] = {"sub": "4711"}
        """The claims of who signs in at its page."""
        self.id_claims: dict[str, Any] = {}
        """What is different in the next ID token; ``key`` is the key that signs it."""
        self.checks_pkce = True
        self.granted = 0
        self._codes: dict[str, dict[str, str]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/realms/lake"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def show(self, *names: str) -> None:
        """Show other keys from now on."""
        self.keys = [{**public_jwk(name), "kid": name} for name in names]

    def token(self, sub: str = "4711", *, key: str | bytes | None = "first", **changed: Any) -> str:
        """Return an access token; ``header``: what its header has besides. A claim that is None is left out."""
        header = {"typ": "at+jwt", "alg": "RS256" if key == "rsa" else "ES256", "kid": key, **changed.pop("header", {})}
        now = int(time.time() + self.ahead)
        claims = {"iss": self.url, "aud": AUDIENCE, "sub": sub, "iat": now, "exp": now + 300, **changed}
        return compact(header, {name: value for name, value in claims.items() if value is not None}, key)

    def authorized(self, asked: dict[str, str]) -> str:
        """Return where a browser goes on after its user signed in: a code is in the address (RFC 6749, 9207)."""
        assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
        code = secrets.token_urlsafe(8)
        self._codes[code] = {**asked, "user": json.dumps(self.user)}
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state'], 'iss': self.url})}"

    def answered(self, authorization: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Return what the token endpoint answers to a form, and with which status."""
        scheme, _, given = authorization.partition(" ")
        account = base64.b64decode(given).decode() if scheme == "Basic" else ""
        client, _, secret = [unquote(one) for one in account.partition(":")]
        if not client:
            client, secret = form.get("client_id", ""), form.get("client_secret", "")
        if self.clients.get(client) != secret:
            return 401, {"error": "invalid_client"}
        if form["grant_type"] == "authorization_code":
            said = self.exchanged(client, form)
            return 400 if "error" in said else 200, said
        if form["grant_type"] != "client_credentials":
            return 400, {"error": "unsupported_grant_type"}
        self.granted += 1
        more: dict[str, Any] = {"exp": int(time.time() + self.ahead) + self.life, "jti": str(self.granted)}
        token = self.token(f"id-of-{client}", preferred_username=client, client_id=client, **more)
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.life}

    def exchanged(self, client: str, form: dict[str, str]) -> dict[str, Any]:
        """Return the tokens for a code, once, to the client that proves that the sign-in is its own (RFC 7636)."""
        asked = self._codes.pop(form["code"], None)
        challenge = _text(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if (
            asked is None
            or (client, form["redirect_uri"]) != (asked["client_id"], asked["redirect_uri"])
            or (self.checks_pkce and challenge != asked["code_challenge"])
        ):
            return {"error": "invalid_grant", "error_description": "<script>"}
        user = json.loads(asked["user"])
        said: dict[str, Any] = {
            "header": {"typ": "JWT"},
            "aud": client,
            "azp": client,
            "nonce": asked["nonce"],
            **self.id_claims,
        }
        return {"access_token": self.token(**user), "id_token": self.token(user["sub"], **said), "token_type": "Bearer"}

    def json_of(self, path: str) -> object:
        if path == DISCOVERY:
            places = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
            return {"issuer": self.url, **{name: f"{self.url}/{at}" for name, at in places.items()}, **self.says}
        if path == "/stolen":
            return {"keys": [{**public_jwk("other"), "kid": "first"}]}
        return {"keys": self.keys} if path == "/keys" else None


def send(handler: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    handler.send_response(status)
    for name, value in {**headers, "Content-Length": str(len(body)), "Content-Type": "application/json"}.items():
        handler.send_header(name, value)
    handler.end_headers()
    with suppress(OSError):  # the client read enough
        handler.wfile.write(body)


def _handler(issuer: OwnIssuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.removeprefix("/realms/lake").partition("?")
            issuer.asked.append(path)
            if path in issuer.answers:
                issuer.answers[path](self)
                return
            if path in ("/authorize", "/approved"):
                send(self, 302, b"", Location=issuer.authorized(dict(parse_qsl(query))))
                return
            found = issuer.json_of(path)
            send(self, 404 if found is None else 200, json.dumps(found).encode())

        def do_POST(self) -> None:
            """Grant client credentials (RFC 6749, section 4.4), or tokens for a code."""
            path = self.path.removeprefix("/realms/lake")
            form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            issuer.asked.append(path)
            if path in issuer.answers:
                issuer.answers[path](self)
                return
            status, said = issuer.answered(self.headers.get("Authorization", ""), form)
            send(self, status, json.dumps(said).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing."""

    return Handler
