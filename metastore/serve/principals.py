"""Find out who makes a request: the owner of a bearer token, the user that a proxy names, or an unchecked name."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from metastore.errors import InvalidArgument

__all__ = ["ANONYMOUS", "NotAuthenticated", "Principals", "tokens_of"]

ANONYMOUS: Final = "anonymous"


class NotAuthenticated(Exception):
    """A request without a valid token, or without the user that the proxy names."""


@dataclass(frozen=True)
class Principals:
    """How a server finds out who makes a request.

    ``tokens``: the users by the SHA-256 of their tokens. ``header``: the header in which a proxy that authenticates
    names the user. Without both, nothing is checked: the user that ``Authorization: Basic`` names, else ``anonymous``.
    """

    tokens: Mapping[bytes, str] = field(default_factory=dict, repr=False)
    header: str | None = None

    @property
    def authenticates(self) -> bool:
        """Whether requests without a user are refused."""
        return bool(self.tokens) or self.header is not None

    def principal(self, headers: Mapping[str, str]) -> str:
        """Return who makes a request. Raises NotAuthenticated, ValueError."""
        scheme, _, value = headers.get("authorization", "").partition(" ")
        if self.header is not None and (user := headers.get(self.header)):
            return user
        if self.tokens and scheme.lower() == "bearer" and (owner := self.tokens.get(_digest(value.strip()))):
            return owner
        if self.authenticates:
            raise NotAuthenticated("the request needs a valid token: Authorization: Bearer …")
        return _basic(value) if scheme.lower() == "basic" else ANONYMOUS


def tokens_of(file: Path) -> dict[bytes, str]:
    """Read a file of tokens: on each line a user and a token. Only digests stay in memory. Raises InvalidArgument."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the token file {file} cannot be read: {type(error).__name__}") from None
    tokens = {}
    for number, line in enumerate(lines, 1):
        match line.split():
            case []:
                continue
            case [user, token]:
                tokens[_digest(token)] = user
            case _:
                raise InvalidArgument(f"line {number} of the token file {file} is not a user and a token")
    if not tokens:
        raise InvalidArgument(f"the token file {file} has no token")
    return tokens


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _basic(value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[0] or ANONYMOUS
    except ValueError:
        raise ValueError("the header Authorization cannot be decoded") from None
