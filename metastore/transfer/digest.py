"""The two hashes of an export: of what a user sees, and of the lines as they are.

A hash is the sum of the SHA-256 of each part modulo 2**256. So the order does not count, and equal parts do not cancel
each other, as they would with XOR. The hashes find accidents and differences. They do not protect against an attacker
that constructs parts with the same sum.
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
        """Add a digest: a part may count in several sums."""
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
    """Return what a user sees of an entity, as canonical bytes."""
    return _canonical([names, family, kind, in_use, doc]).encode()


def of_owned(names: Sequence[str], family: str, kind: str, name: str, doc: Mapping[str, Any]) -> bytes:
    """Return what a user sees of an owned row of the entity at ``names``, as canonical bytes."""
    return _canonical([names, family, kind, name, doc]).encode()


def of_relation(
    names: Sequence[str], family: str, kind: str, to: Sequence[str], column: Sequence[str] | None, value: str
) -> bytes:
    """Return what a user sees of a relation that goes from the entity at ``names``, as canonical bytes."""
    return _canonical([names, family, kind, to, column, value]).encode()
