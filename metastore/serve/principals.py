"""Find out who makes a request: a token's owner, the user that an issuer or a proxy names, or an unchecked name.

A file of tokens is read again when it changes, so a token that is removed from it ends at once, without a restart.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from metastore.arguments import text_in
from metastore.errors import InvalidArgument

if TYPE_CHECKING:
    from metastore.serve.oidc import Issuer

__all__ = [
    "ANONYMOUS",
    "Claimed",
    "IssuerAway",
    "NotAuthenticated",
    "Principal",
    "Principals",
    "TokenFile",
    "tokens_of",
]

_LOG = logging.getLogger("metastore.serve")
ANONYMOUS: Final = "anonymous"
_HEADER: Final = re.compile(r"[A-Za-z0-9-]+")
_TAKEN: Final = ("authorization", "cookie", "host")
"""Headers with another meaning. A user's name from them would be the token itself, or any host that a client sends."""


class NotAuthenticated(Exception):
    """A request without a valid token, or without the user that the proxy names."""


class IssuerAway(Exception):
    """The issuer of a token does not answer, so it is unknown whether the token is valid; the client tries again."""


@dataclass(frozen=True)
class Claimed:
    """The groups that a token names, and their issuer."""

    issuer: str
    names: frozenset[str]


@dataclass(frozen=True)
class Principal:
    """Who makes a request: the name of a user.

    ``external_id``: its identity at its issuer, which may give the name to another user later; None: the name
    identifies it. ``groups``: the groups of its token; None: groups have no effect here. ``signs_in``: its token was
    verified for the first time.
    """

    name: str
    external_id: str | None = None
    groups: Claimed | None = field(default=None, compare=False)
    signs_in: bool = field(default=False, compare=False)

    @property
    def key(self) -> str:
        """A text that identifies this principal and no other."""
        return self.external_id or self.name


@dataclass(frozen=True)
class Principals:
    """How a server finds out who makes a request.

    ``tokens``: the users by the SHA-256 of their tokens. ``issuer``: an issuer of OpenID Connect, whose access tokens
    are valid too. ``header``: the header in which a proxy that authenticates names the user. With tokens and a header,
    a request has both: the token is the proxy's, the header names the user. Without any of them, nothing is checked:
    the user is the one that ``Authorization: Basic`` names, else ``anonymous``. Raises InvalidArgument for an issuer
    together with a header, and for a header that cannot name a user.
    """

    tokens: Mapping[bytes, str] = field(default_factory=dict, repr=False)
    header: str | None = None
    issuer: Issuer | None = None

    def __post_init__(self) -> None:
        if self.issuer is not None and self.header is not None:
            raise InvalidArgument("an issuer's token and a proxy's header cannot both name the user; choose one")
        if self.header is not None and (not _HEADER.fullmatch(self.header) or self.header.lower() in _TAKEN):
            raise InvalidArgument(f"the header that names the user is one such as X-User, not {self.header!r}")

    @property
    def authenticates(self) -> bool:
        """Whether requests without a user are refused."""
        return self._demands_token or self.header is not None

    @property
    def _demands_token(self) -> bool:
        """Whether a request needs a token. With a token file it does, even if no token is left in the file."""
        return isinstance(self.tokens, TokenFile) or bool(self.tokens) or self.issuer is not None

    async def ready(self, headers: Mapping[str, str]) -> None:
        """Wait until ``principal`` can answer, if an issuer must be asked. Raises NotAuthenticated."""
        token = _bearer(headers)
        if self.issuer is not None and token and _digest(token) not in self.tokens:
            await self.issuer.ready(token)

    def principal(self, headers: Mapping[str, str]) -> Principal:
        """Return the principal of a request, without waiting. Raises NotAuthenticated, IssuerAway, ValueError."""
        if not self.authenticates:
            scheme, _, value = headers.get("authorization", "").partition(" ")
            return Principal(_basic(value) if scheme.lower() == "basic" else ANONYMOUS)
        token = _bearer(headers)
        owner = self.tokens.get(_digest(token)) if token else None
        if owner is None and token and self.issuer is not None:
            return self.issuer.principal(token)
        if owner is None and (self.header is None or self._demands_token):
            raise NotAuthenticated("the request needs a valid token: Authorization: Bearer …")
        user = owner if self.header is None else _utf8(headers.get(self.header, ""))
        if not user:
            raise NotAuthenticated(f"the proxy names no user in the header {self.header}")
        return Principal(user)


class TokenFile(Mapping[bytes, str]):
    """The current tokens of a file.

    If the file cannot be read, the tokens that were read last stay, and a warning is logged.

    If the last token is taken out of the file, no token is valid.
    """

    def __init__(self, file: Path) -> None:
        """Read the file. Raises InvalidArgument."""
        self._file = file
        self._seen: object = None
        self._tokens: dict[bytes, str] = {}
        self._seen, self._tokens = self._state(), tokens_of(file)

    def _state(self) -> object:
        try:
            stat = self._file.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _now(self) -> dict[bytes, str]:
        state = self._state()  # before the read: if the file changes meanwhile, it is read once more
        if state != self._seen:
            self._seen = state
            try:
                self._tokens = _read(self._file)
            except InvalidArgument as error:
                _LOG.warning("the tokens that were read last stay: %s", error)
        return self._tokens

    def __getitem__(self, digest: bytes) -> str:
        return self._now()[digest]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())


def tokens_of(file: Path) -> dict[bytes, str]:
    """Read a file of tokens: on each line a user and a token. Only digests stay in memory. Raises InvalidArgument."""
    tokens = _read(file)
    if not tokens:
        raise InvalidArgument(f"the token file {file} has no token")
    return tokens


def _read(file: Path) -> dict[bytes, str]:
    tokens: dict[bytes, str] = {}
    for number, line in enumerate(text_in(file, "the token file").splitlines(), 1):
        match line.split():
            case []:
                continue
            case [user, token]:
                if tokens.setdefault(_digest(token), user) != user:
                    raise InvalidArgument(f"line {number} of the token file {file} has another user's token")
            case _:
                raise InvalidArgument(
                    f"line {number} of the token file {file} is not a user and a token, with a space between them"
                )
    return tokens


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _bearer(headers: Mapping[str, str]) -> str:
    """Return the bearer token of a request; empty if it has none."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else ""


def _utf8(value: str) -> str:
    """Return the text of a header. ASGI's readers decode it as Latin-1, but proxies send names in UTF-8."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        raise NotAuthenticated("the proxy's name of the user is not UTF-8") from None


def _basic(value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[0] or ANONYMOUS
    except ValueError:
        raise ValueError("the header Authorization cannot be decoded") from None
