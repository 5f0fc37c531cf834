"""The lock files of Apache Hudi's storage-based lock provider (RFC-91): Hudi's writers and ours exclude each other.

There is one lock file for each table, at ``<base path>/.hoodie/.locks/table_lock.json``::

    {"owner": "…", "validUntil": 1767225630000, "expired": false}

Hudi's class StorageLockData writes this; the text of the RFC says ``expiration`` instead, which is read, too. The lock
is held unless it is ``expired``, or ``validUntil`` (ms since 1970) has passed by more than the allowed clock drift.
Hudi ignores unknown fields, so our writes can add the fields of our own lock files; but a Hudi writer leaves them out.
So the file has no queue, no history, and no lasting token: the token that our writes add is for the store that
they fence, which remembers it.
"""

from __future__ import annotations

import json
from typing import Any

from metastore.errors import InvalidArgument
from metastore.kinds.entity import utc
from metastore.leases.objects.lock_file import Holding, LockFile, unreadable

__all__ = ["decode", "encode", "key", "place"]

_FOLDER = ".hoodie/.locks"


def key(name: str) -> str:
    """Return the key of a table's lock file. The lease's name is the table's base path, below the URL."""
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise InvalidArgument(
            f"the name of a lease of format hudi is the base path of a table, below the URL: not {name!r}; "
            "for example sales/orders"
        )
    return f"{name}/{_FOLDER}/table_lock.json"


def place(name: str) -> str:
    """Return the key of the place's id: one for each table, because a table has another name below another URL."""
    return f"{name}/{_FOLDER}/.metastore-place"


def encode(file: LockFile) -> bytes:
    """Return the file in the form that Hudi reads. A lease without a holder is written as expired."""
    held = file.holding
    document: dict[str, Any] = {"expired": held is None, "nonce": file.nonce, "token": file.token, "place": file.place}
    if held is None:
        document |= {"owner": "", "validUntil": 0}
    else:
        document |= {
            "owner": held.owner,
            "validUntil": held.expires_at // 1000,
            "acquisition": held.id,
            "incarnation": held.incarnation,
            "ttl": None if held.ttl is None else held.ttl / 1_000_000,
            "acquiredAt": held.acquired_at // 1000,
            "renewals": held.renewals,
        }
    return json.dumps(document, ensure_ascii=False).encode()


def decode(name: str | None, data: bytes, where: str) -> LockFile:
    """Return the lock file. Raises BackendUnavailable if ``data`` is not one."""
    try:
        document = json.loads(data)
        until = document["validUntil"] if "validUntil" in document else document["expiration"]
        owner, expired = document["owner"], document["expired"]
        if not isinstance(owner, str) or not isinstance(expired, bool) or isinstance(until, bool):
            raise TypeError
        expires_at = int(until) * 1000
        utc(expires_at)  # raises for a time outside the calendar
        nonce, token, place = str(document.get("nonce", "")), int(document.get("token", 0)), document.get("place")
        holding = None if expired else _holding(document, owner, expires_at)
        return LockFile(name or "", token, nonce, holding, place=place if isinstance(place, str) else None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise unreadable(where, "it is not a lock file of Hudi's storage-based lock provider") from None


def _holding(document: dict[str, Any], owner: str, expires_at: int) -> Holding:
    # Hudi wrote the file, without the time of acquisition: use the expiry instead. Another expiry means that the lock
    # was renewed, or acquired again
    if "acquisition" not in document:
        return Holding(f"hudi {owner}", owner, owner, None, expires_at, expires_at)
    acquired_at, renewals = int(document["acquiredAt"]) * 1000, int(document["renewals"])
    ttl = round(float(document["ttl"]) * 1_000_000)
    return Holding(
        str(document["acquisition"]), owner, str(document["incarnation"]), ttl, acquired_at, expires_at, renewals
    )
