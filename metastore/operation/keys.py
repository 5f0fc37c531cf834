"""Make operation ids from text: hash a client's idempotency key to a UUIDv8 (RFC 9562, section 5.8).

A UUIDv7 has the time at which its operation began, so the store can refuse an operation that gc may have forgotten. A
key has no time. Instead, each message of a call carries the time at which the call began. The operation's row does the
rest, as for any operation id: docs/progress.md has the proof. The store knows a key as long as gc keeps operations (its
retention); a later call with the same key is a new operation.
"""

from __future__ import annotations

import hashlib
from uuid import RFC_4122, UUID

from metastore.arguments import shown
from metastore.clock import Clock
from metastore.errors import InvalidArgument
from metastore.names import exact_text


def key(text: str, *, scope: str = "") -> UUID:
    """Return the operation id of a client's idempotency key, for ``operation_id=``.

    ``scope`` is the owner of the key, such as the principal: equal texts of different scopes are different operations.
    Anybody who knows both can compute the id. Raises InvalidArgument unless both are texts, and if the key is empty.
    """
    ours, whose = _bytes(text, "a key"), _bytes(scope, "a key's scope")
    if not ours:
        raise InvalidArgument("a key is a text that is not empty, such as a client's Idempotency-Key")
    # the length marks the end of the caller's text, so that no two pairs of texts give the same bytes
    digest = hashlib.sha256(b"metastore.key %d " % len(ours) + ours + whose).digest()
    value = int.from_bytes(digest[:16], "big")
    value = value & ~(0xF << 76) | 0x8 << 76
    return UUID(int=value & ~(0b11 << 62) | 0b10 << 62)


def _bytes(text: object, what: str) -> bytes:
    if not issubclass(type(text), str):
        raise InvalidArgument(f"{what} is a text, not {shown(text)}")
    try:
        return str.__str__(text).encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{what} has a lone surrogate; it is not valid Unicode text") from None


def clean_operation_id(value: object) -> UUID:
    """Return ``value``, a UUIDv7 or a key, as a UUID. Raises InvalidArgument for anything else."""
    try:
        given = value if isinstance(value, UUID) else UUID(exact_text(value, "an operation id"))
    except (ValueError, InvalidArgument):
        given = None
    if given is None or given.version not in (7, 8) or given.variant != RFC_4122:
        raise InvalidArgument(
            f"an operation id is a UUIDv7, from ms.new_operation_id(), or a key, from ms.key(…), not {shown(value)}"
        )
    return UUID(int=given.int)  # a copy, because the argument may be an instance of a subclass


def began(operation_id: UUID, clock: Clock) -> int:
    """Return when the operation began (µs since 1970): the time in a UUIDv7 (RFC 9562, section 5.7); now, for a key."""
    return clock.micros() if operation_id.version == 8 else (operation_id.int >> 80) * 1000
