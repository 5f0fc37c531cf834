"""A page and its token: where the next page begins.

A token holds ids and the last key, but no path, so it stays valid through restarts and renames. A signature with the
epoch of the database's feed exposes a damaged token, or one of another database. The signature is not secret: a token
gives its holder no further rights.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from metastore.arguments import positive_integer, shown
from metastore.errors import InvalidArgument
from metastore.names import clean_text
from metastore.plain import plain

T = TypeVar("T")

MOST: Final = 100_000
"""The largest page."""
_SIGNED: Final = 9
_LAST: Final = "\U0010ffff"


@dataclass(frozen=True)
class Page(Generic[T]):
    """Some items of a listing, and the token of the next page; None: this is the last page."""

    items: tuple[T, ...]
    next_token: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the page as plain JSON values."""
        return {"items": plain(self.items), "next_token": self.next_token}


@dataclass(frozen=True)
class TokenScope:
    """The listing that a token belongs to: its rows, their kind, their prefix."""

    what: str
    kind: str
    prefix: str | None = None


def clean_size(size: object) -> int:
    """Return the size of a page, or raise InvalidArgument."""
    number = positive_integer(size, "a page's size")
    if number > MOST:
        raise InvalidArgument(f"a page has at most {MOST} items, not {shown(size)}")
    return number


def write_token(listed: TokenScope, epoch: str, parent_id: int, after: list[Any]) -> str:
    """Return the token of the page after the key ``after``."""
    body = json.dumps([listed.what, listed.kind, listed.prefix, parent_id, after], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_signature(body, epoch) + body).rstrip(b"=").decode()


def read_token(listed: TokenScope, epoch: str, token: object) -> tuple[int, list[Any]]:
    """Return the parent's id, and the key after which the page begins. Raises InvalidArgument for a wrong token."""
    try:
        text = clean_text(token, "a token")
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        body = raw[_SIGNED:]
        if raw[:_SIGNED] != _signature(body, epoch) or base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != text:
            raise ValueError
        what, kind, prefix, parent_id, after = json.loads(body)
    except ValueError:
        raise InvalidArgument(
            f"{shown(token)} is not a token of this database's pages: it is damaged, or another's; begin without one"
        ) from None
    if TokenScope(what, kind, prefix) != listed:
        raise InvalidArgument("the token is of another listing: repeat the call that gave it, with the same arguments")
    return parent_id, after


def _signature(body: bytes, epoch: str) -> bytes:
    return hashlib.sha256(epoch.encode(errors="surrogateescape") + b" " + body).digest()[:_SIGNED]


def just_before(prefix: str) -> str:
    """Return a text that sorts before all texts with the prefix ``prefix``, and after nearly all smaller texts."""
    if not prefix:
        return ""
    last = ord(prefix[-1]) - 1
    if last <= 0:
        return prefix[:-1]
    if 0xD800 <= last <= 0xDFFF:  # a text has no surrogates
        last = 0xD7FF
    return prefix[:-1] + chr(last) + _LAST
