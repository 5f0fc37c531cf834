"""A lock file, which is one object for one lease, and its changes. Pure: uses neither a clock nor storage.

::

    {"format": "metastore-lease/2", "name": "compaction", "place": "…", "token": 7,
     "owner": "crawler", "incarnation": "…", "acquisition": "…", "renewals": 3, "ttl": 30.0,
     "acquired_at": "2026-01-01T00:00:00+00:00", "expires_at": "…", "nonce": "…",
     "history": [{"action": "acquire", "token": 7, "time": "…", "owner": "…", "incarnation": "…", "nonce": "…"}]}

If a lease has no holder, the holder's fields are null. Each write has a new ``nonce``. ``acquisition`` keeps the nonce
of the write that acquired the lease, and ``history`` those of the last changes of the holder. So a writer that got no
answer can find out later whether its write was applied, even if others have written since. ``place`` is the id of the
place, once a store has noted a token of the lease. Files of the format 1, which have no ``place``, can still be read.
An older program refuses files of the format 2, because it would note tokens under another name.

In memory, times are microseconds since 1970 by the writer's wall clock.
"""

from __future__ import annotations

import json
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from metastore.errors import BackendUnavailable, MigrationNeeded
from metastore.kinds.entity import utc

__all__ = ["HISTORY", "Holding", "LockFile", "Past", "decode", "encode", "unreadable"]

FORMAT = "metastore-lease/2"
_READ = ("metastore-lease/1", FORMAT)
_FAMILY = "metastore-lease/"
HISTORY = 32
"""How many changes of the holder a lock file keeps."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Holding:
    """The holder of the lease. ``id`` is the nonce of the write that acquired it; ``ttl`` is in microseconds."""

    id: str
    owner: str
    incarnation: str
    ttl: int | None
    """None: unknown, because Hudi wrote the file."""
    acquired_at: int
    expires_at: int
    renewals: int = 0


@dataclass(frozen=True, slots=True)
class Past:
    """A change of the holder: acquire, takeover, release or break. ``nonce`` identifies the write."""

    action: str
    token: int
    time: int
    owner: str
    incarnation: str
    nonce: str


@dataclass(frozen=True, slots=True)
class LockFile:
    """One version of a lock file."""

    name: str
    token: int
    nonce: str
    holding: Holding | None = None
    history: tuple[Past, ...] = ()
    place: str | None = None

    def bears(self, nonces: AbstractSet[str]) -> bool:
        """Return whether one of these writes was applied: its nonce is that of this version, or is in the history."""
        return self.nonce in nonces or any(past.nonce in nonces for past in self.history)

    def taken(self, holding: Holding, action: str) -> LockFile:
        """Return the file with a new holder, and the next token."""
        return self._handed(holding.id, holding, holding, action, holding.acquired_at)

    def freed(self, nonce: str, action: str, now: int) -> LockFile:
        """Return the file without a holder, and with the next token."""
        assert self.holding is not None
        return self._handed(nonce, None, self.holding, action, now)

    def _handed(self, nonce: str, after: Holding | None, who: Holding, action: str, now: int) -> LockFile:
        token = self.token + 1
        past = Past(action, token, now, who.owner, who.incarnation, nonce)
        history = (*self.history, past)[-HISTORY:]
        return replace(self, token=token, nonce=nonce, holding=after, history=history)

    def renewed(self, nonce: str, ttl: int, now: int) -> LockFile:
        """Return the file with a later expiry."""
        held = self.holding
        assert held is not None
        longer = replace(held, ttl=ttl, expires_at=now + ttl, renewals=held.renewals + 1)
        return replace(self, nonce=nonce, holding=longer)

    def raised(self, nonce: str, token: int) -> LockFile:
        """Return the file with a greater token for its holder."""
        assert self.holding is not None
        history = tuple([replace(p, token=token) if p.nonce == self.holding.id else p for p in self.history])
        return replace(self, nonce=nonce, token=token, history=history)


def encode(file: LockFile) -> bytes:
    """Return the file as JSON."""
    held = file.holding
    document = {
        "format": FORMAT,
        "name": file.name,
        "place": file.place,
        "token": file.token,
        "owner": held and held.owner,
        "incarnation": held and held.incarnation,
        "acquisition": held and held.id,
        "renewals": held and held.renewals,
        "ttl": None if held is None or held.ttl is None else held.ttl / 1_000_000,
        "acquired_at": held and _iso(held.acquired_at),
        "expires_at": held and _iso(held.expires_at),
        "nonce": file.nonce,
        "history": [
            {
                "action": past.action,
                "token": past.token,
                "time": _iso(past.time),
                "owner": past.owner,
                "incarnation": past.incarnation,
                "nonce": past.nonce,
            }
            for past in file.history
        ],
    }
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode()


def decode(name: str | None, data: bytes, where: str) -> LockFile:
    """Return the lock file of the lease ``name``; None: any lease is accepted.

    Raises BackendUnavailable if ``data`` is not that lock file, MigrationNeeded for a newer format.
    """
    try:
        document = json.loads(data)
        form = document["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise unreadable(where, "it is not a lock file, or only a part of one") from None
    if form not in _READ:
        if isinstance(form, str) and form.startswith(_FAMILY):
            raise MigrationNeeded(f"{where} has the format {form[:40]!r}; this program knows {FORMAT}: upgrade it")
        raise unreadable(where, f"its format is not {FORMAT}")
    try:
        file = _read(document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise unreadable(where, f"a field of this {FORMAT} is missing or malformed") from None
    if name not in (None, file.name):
        raise unreadable(where, f"it is the lock file of {file.name!r}")
    return file


def unreadable(where: str, why: str) -> BackendUnavailable:
    """Return the error for an object that is not the expected lock file."""
    return BackendUnavailable(
        f"{where} was left as it is: {why}; look at it, and remove it if no holder is active, or keep leases elsewhere"
    )


def _read(document: dict[str, Any]) -> LockFile:
    holding = None
    if document["acquisition"] is not None:
        holding = Holding(
            _text(document["acquisition"]),
            _text(document["owner"]),
            _text(document["incarnation"]),
            round(float(document["ttl"]) * 1_000_000),
            _micros(document["acquired_at"]),
            _micros(document["expires_at"]),
            _number(document["renewals"]),
        )
    history = tuple(
        [
            Past(
                _text(past["action"]),
                _number(past["token"]),
                _micros(past["time"]),
                _text(past["owner"]),
                _text(past["incarnation"]),
                _text(past["nonce"]),
            )
            for past in document["history"]
        ]
    )
    token, nonce = _number(document["token"]), _text(document["nonce"])
    place = None if document["format"] == _READ[0] or document["place"] is None else _text(document["place"])
    return LockFile(_text(document["name"]), token, nonce, holding, history, place)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError
    return value


def _iso(micros: int) -> str:
    return utc(micros).isoformat(timespec="microseconds")


def _micros(text: object) -> int:
    when = datetime.fromisoformat(_text(text))
    if when.tzinfo is None:
        raise ValueError
    return (when - _EPOCH) // timedelta(microseconds=1)
