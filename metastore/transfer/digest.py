"""The two hashes of an export: of the content that a user sees, and of the exact lines.

A hash is the sum of the SHA-256 values of all parts modulo 2**256. So it does not depend on the order, and equal parts
do not cancel each other out, as they would with XOR. The hashes find damage and differences. They do not protect
against an attacker that constructs parts with the same sum.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

__all__ = ["Sum", "number_of", "of_entity", "of_header", "of_owned", "of_relation"]

_canonical = json.JSONEncoder(separators=(",", ":"), sort_keys=True, check_circular=False).encode


class Sum:
    """A sum of digests."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, part: bytes) -> None:
        """Add the digest of a part."""
        self.add_number(number_of(part))

    def add_number(self, number: int) -> None:
        """Add a digest; a part may be added to several sums."""
        self._sum += number

    def hexdigest(self) -> str:
        """Return the sum as 64 hexadecimal digits."""
        return f"{self._sum % (1 << 256):064x}"


def number_of(part: bytes) -> int:
    """Return the digest of a part as a number."""
    return int.from_bytes(sha256(part).digest(), "big")


def of_header(raw: bytes) -> str:
    """Return the digest of the header line: 64 hexadecimal digits."""
    return sha256(raw).hexdigest()


def of_entity(names: Sequence[str], family: str, kind: str, in_use: bool, doc: Mapping[str, Any]) -> bytes:
    """Return the content of an entity that a user sees, as canonical bytes."""
    return _canonical([names, family, kind, in_use, doc]).encode()


def of_owned(names: Sequence[str], family: str, kind: str, name: str, doc: Mapping[str, Any]) -> bytes:
    """Return the content of an owned row of the entity at ``names``, as canonical bytes."""
    return _canonical([names, family, kind, name, doc]).encode()


def of_relation(
    names: Sequence[str], family: str, kind: str, to: Sequence[str], column: Sequence[str] | None, value: str
) -> bytes:
    """Return the content of a relation from the entity at ``names``, as canonical bytes."""
    return _canonical([names, family, kind, to, column, value]).encode()
