"""Sign a browser in at the issuer: the authorization code flow with PKCE (RFC 6749, 7636, 9207, 9700).

The browser's cookie holds the secret of its sign-in, so that any server can end a sign-in that another one began, and
no server keeps state. The cookie needs no key of the servers. A server does not trust the cookie: it checks that the
answer belongs to the cookie's secret. ``state``, the nonce and the verifier are derived from that secret, and differ.
The issuer sees the first two, and the digest of the third. A sealed cookie would not be safer: an attacker who can
write cookies of this origin into another browser could also write one that a server sealed for the attacker.

* ``state`` belongs to the cookie: a page elsewhere cannot end a sign-in that it began (login CSRF).
* The issuer compares the verifier: a code from another browser, or a stolen one, does not work in this browser.
* The nonce of the ID token is compared too, because some issuers ignore PKCE.
* ``iss`` of the answer is the issuer, if the issuer sends it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import httpx

from metastore.arguments import text_in
from metastore.clock import SYSTEM, Clock
from metastore.errors import InvalidArgument
from metastore.serve.oidc.asking import Unusable, answered, document_of, granted, is_base, place_of
from metastore.serve.principals import IssuerAway, NotAuthenticated

if TYPE_CHECKING:
    from metastore.serve.oidc.issuer import Issuer

__all__ = ["Begun", "Client", "CodeFlow", "secret_of"]

T = TypeVar("T")

_KEPT: Final = 300.0
"""After how long the issuer's document is read again (seconds)."""
_LONGEST: Final = 2000
"""The longest address that a browser opens after the sign-in (characters). A longer one does not fit into the
cookie."""
_ERROR: Final = re.compile(r"[a-z_]{1,40}")
_LOG = logging.getLogger("metastore.serve")


@dataclass(frozen=True)
class Client:
    """The console's client at the issuer.

    ``public_url``: the address at which browsers reach this server, without ``/console/``. ``secret``: None for a
    public client. ``scope``: the scopes that it requests besides ``openid``. Raises InvalidArgument.
    """

    id: str
    public_url: str
    secret: str | None = field(default=None, repr=False)
    scope: str = ""

    def __post_init__(self) -> None:
        if not self.id:
            raise InvalidArgument("the id of the console's client at the issuer must not be empty")
        if not is_base(self.public_url):
            raise InvalidArgument(
                "the public URL is where browsers reach this server: https://…, without a user, a query and a "
                f"fragment; http only on this machine; not {self.public_url[:80]!r}"
            )

    @property
    def origin(self) -> tuple[str, str]:
        """Return the scheme of the public URL, and its host and port, as browsers write them in ``Origin``."""
        url = httpx.URL(self.public_url)
        return url.scheme, url.netloc.decode().lower()

    def page(self, name: str) -> str:
        """Return the address of a page of the console, as browsers reach it."""
        return f"{self.public_url.removesuffix('/')}/console/{name}"


class Begun(NamedTuple):
    """A sign-in that a browser began: the content of its cookie."""

    secret: str
    end: int
    following: str

    @property
    def cookie(self) -> str:
        return f"{self.end}.{self.secret}.{_text(self.following.encode())}"

    def made(self, name: str) -> str:
        """Return a value that is derived from the secret.

        It reveals neither the secret nor the value of another name.
        """
        return _text(hmac.digest(self.secret.encode(), name.encode(), hashlib.sha256))


class CodeFlow:
    """Sign browsers in at an issuer. Call its methods in a thread, because they may wait for the issuer for seconds."""

    life: Final = 600
    """How long a browser may take to sign in at the issuer (seconds)."""

    def __init__(self, issuer: Issuer, client: Client, *, clock: Clock = SYSTEM) -> None:
        self.client = client
        self._issuer = issuer
        self._clock = clock
        self._known: Mapping[str, Any] | None = None
        self._asked = 0.0

    @property
    def host(self) -> str:
        """Return the name of the issuer's host, which the button shows."""
        return urlsplit(self._issuer.url).hostname or ""

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach this server by TLS."""
        return urlsplit(self.client.public_url).scheme == "https"

    def begin(self, following: str) -> tuple[str, str]:
        """Return the address at which a browser signs in, and the cookie that it needs on its way back.

        Raises IssuerAway.
        """
        place = _heard(self._place("authorization_endpoint"))
        if len(following) > _LONGEST:
            following = ""
        begun = Begun(secrets.token_urlsafe(32), self._now() + self.life, following)
        asked = {
            "response_type": "code",
            "client_id": self.client.id,
            "redirect_uri": self.client.page("callback"),
            "scope": f"openid {self.client.scope}".strip(),
            "state": begun.made("state"),
            "nonce": begun.made("nonce"),
            "code_challenge": _text(hashlib.sha256(begun.made("verifier").encode()).digest()),
            "code_challenge_method": "S256",
        }
        return _with(place, asked), begun.cookie

    def begun(self, answer: Mapping[str, str], cookie: str) -> Begun:
        """Return the sign-in of this browser to which an answer belongs, without waiting. Raises NotAuthenticated."""
        begun = _begun(cookie, self._now())
        if begun is None or not hmac.compare_digest(answer.get("state", "").encode(), begun.made("state").encode()):
            raise NotAuthenticated(
                "this answer belongs to no sign-in that this browser has begun; start at "
                f"{self.client.page('')}, and allow its cookies"
            )
        return begun

    def end(self, answer: Mapping[str, str], begun: Begun) -> str:
        """Return the access token for an answer.

        The caller must still check it. Raises NotAuthenticated, IssuerAway.
        """
        return _heard(self._ended(answer, begun))

    def leave(self) -> str | None:
        """Return the address at which a browser ends its session at the issuer; None if the issuer has none."""
        document = _heard(self._document())
        if "end_session_endpoint" not in document:
            return None
        place = _heard(self._place("end_session_endpoint"))
        return _with(place, {"client_id": self.client.id, "post_logout_redirect_uri": self.client.page("signin")})

    async def _ended(self, answer: Mapping[str, str], begun: Begun) -> str:
        document = await self._document()
        named = "iss" in answer or document.get("authorization_response_iss_parameter_supported") is True
        if named and answer.get("iss") != self._issuer.url:
            raise NotAuthenticated("the answer came from another issuer; sign in again")
        if "error" in answer or not answer.get("code"):
            raise NotAuthenticated(f"the issuer refused the sign-in ({_code(answer.get('error'))})")
        form = {
            "grant_type": "authorization_code",
            "code": answer["code"],
            "redirect_uri": self.client.page("callback"),
            "code_verifier": begun.made("verifier"),
        }
        account, methods = None, document.get("token_endpoint_auth_methods_supported")
        if self.client.secret is None:
            form["client_id"] = self.client.id
        elif isinstance(methods, list) and "client_secret_basic" not in methods:
            form |= {"client_id": self.client.id, "client_secret": self.client.secret}
        else:
            account = quote(self.client.id, safe=""), quote(self.client.secret, safe="")
        said = await granted(self._issuer.url, await self._place("token_endpoint"), form, account)
        if "error" in said:
            code = _code(said["error"])
            _LOG.warning("the issuer gives no token for the code of a browser: %s", code)
            raise NotAuthenticated(f"the issuer gave no token for this sign-in ({code}); sign in again")
        tokens = said.get("access_token"), said.get("id_token")
        if not all(isinstance(one, str) for one in tokens):
            raise Unusable("the issuer's answer lacks an access token or an ID token")
        await self._issuer.check_id_token(str(tokens[1]), self.client.id, begun.made("nonce"))
        return str(tokens[0])

    async def _place(self, name: str) -> str:
        return place_of(await self._document(), name, self._issuer.url)

    async def _document(self) -> Mapping[str, Any]:
        now = self._clock.monotonic()
        if self._known is None or now - self._asked >= _KEPT:
            self._known, self._asked = await document_of(self._issuer.url), now
        return self._known

    def _now(self) -> int:
        return self._clock.micros() // 1_000_000


def secret_of(file: Path) -> str:
    """Return the secret of a client that a file holds. Raises InvalidArgument."""
    secret = text_in(file, "the file of the client's secret").strip()
    if not secret or not secret.isprintable():
        raise InvalidArgument(f"the file of the client's secret {file} has no secret, or more than one line")
    return secret


def _heard(question: Coroutine[Any, Any, T]) -> T:
    """Return the issuer's answer to a question. Raises IssuerAway without a usable answer."""
    try:
        return answered(question)
    except (Unusable, TimeoutError, httpx.HTTPError, httpx.InvalidURL) as error:
        _LOG.warning("a browser cannot sign in at the issuer: %s: %s", type(error).__name__, error)
        raise IssuerAway(
            "the issuer does not answer as it should, so signing in there does not work now; try again"
        ) from None


def _begun(cookie: str, now: int) -> Begun | None:
    """Return the sign-in of a cookie; None if the cookie has none, or if its time is over."""
    end, _, rest = cookie.partition(".")
    secret, _, following = rest.partition(".")
    if not end.isascii() or not end.isdigit() or not now < int(end[:12]) or len(secret) < 43:
        return None
    try:
        following = base64.b64decode(following + "=" * (-len(following) % 4), altchars=b"-_", validate=True).decode()
    except ValueError:
        return None
    return Begun(secret, int(end[:12]), following)


def _code(error: object) -> str:
    """Return the code of an issuer's error. The issuer may have sent anything as the code."""
    return str(error) if _ERROR.fullmatch(str(error)) else "without a valid code"


def _with(place: str, parameters: Mapping[str, str]) -> str:
    return f"{place}{'&' if '?' in place else '?'}{urlencode(parameters, quote_via=quote)}"


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")
