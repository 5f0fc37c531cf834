"""A lock file: what one object says of one lease, and how that changes. Pure: it asks neither time nor storage.

::

    {"format": "metastore-lease/1", "name": "compaction", "token": 7,
     "owner": "crawler", "incarnation": "…", "acquisition": "…", "renewals": 3, "ttl": 30.0,
     "acquired_at": "2026-01-01T00:00:00+00:00", "expires_at": "…", "nonce": "…",
     "waiting": [{"ticket": "…", "owner": "…", "until": "…"}],
     "history": [{"action": "acquire", "token": 7, "time": "…", "owner": "…", "incarnation": "…", "nonce": "…"}]}

Of a lease that nobody holds, what belongs to the holder is null. Each write has a ``nonce`` of its own; the one that
acquired the lease stays as ``acquisition``, and those of the last changes of hands in ``history``: so that whoever
wrote something and got no answer finds out later whether it was applied, also if others have written since.

Times are microseconds since 1970 here, by the wall clock of who wrote them.
"""

from __future__ import annotations

import json
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from metastore.errors import BackendUnavailable, MigrationNeeded
from metastore.kinds.entity import utc

__all__ = ["HISTORY", "Holding", "LockFile", "Past", "Waiter", "decode", "encode", "unreadable"]

FORMAT = "metastore-lease/1"
_FAMILY = "metastore-lease/"
HISTORY = 32
"""How many changes of hands a lock file remembers."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Holding:
    """Who holds the lease. ``id`` is the nonce of the write that acquired it; ``ttl`` is in microseconds."""

    id: str
    owner: str
    incarnation: str
    ttl: int | None
    """None: it is not known (what Hudi wrote does not say it)."""
    acquired_at: int
    expires_at: int
    renewals: int = 0


@dataclass(frozen=True, slots=True)
class Waiter:
    """One who waits, and counts as alive until ``until``. Tickets sort in the order of arrival."""

    ticket: str
    owner: str
    until: int


@dataclass(frozen=True, slots=True)
class Past:
    """A change of hands: acquire, takeover, release or break. ``nonce`` is that of the write."""

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
    waiting: tuple[Waiter, ...] = ()
    history: tuple[Past, ...] = ()

    def bears(self, nonces: AbstractSet[str]) -> bool:
        """Whether one of these writes was applied: it is this one, or what it did is part of the history."""
        return self.nonce in nonces or any(past.nonce in nonces for past in self.history)

    def taken(self, holding: Holding, action: str) -> LockFile:
        """Give it to a new holder."""
        return self._handed(holding.id, holding, holding, action, holding.acquired_at)

    def freed(self, nonce: str, action: str, now: int) -> LockFile:
        """Take it away from its holder."""
        assert self.holding is not None
        return self._handed(nonce, None, self.holding, action, now)

    def _handed(self, nonce: str, after: Holding | None, who: Holding, action: str, now: int) -> LockFile:
        token = self.token + 1
        past = Past(action, token, now, who.owner, who.incarnation, nonce)
        history = (*self.history, past)[-HISTORY:]
        return replace(self, token=token, nonce=nonce, holding=after, history=history)

    def renewed(self, nonce: str, ttl: int, now: int) -> LockFile:
        """Let its holder have it for longer."""
        held = self.holding
        assert held is not None
        longer = replace(held, ttl=ttl, expires_at=now + ttl, renewals=held.renewals + 1)
        return replace(self, nonce=nonce, holding=longer)

    def queued(self, nonce: str, waiting: tuple[Waiter, ...]) -> LockFile:
        """Change who waits for it."""
        return replace(self, nonce=nonce, waiting=tuple(sorted(waiting, key=lambda waiter: waiter.ticket)))


def encode(file: LockFile) -> bytes:
    """Write it down."""
    held = file.holding
    document = {
        "format": FORMAT,
        "name": file.name,
        "token": file.token,
        "owner": held and held.owner,
        "incarnation": held and held.incarnation,
        "acquisition": held and held.id,
        "renewals": held and held.renewals,
        "ttl": None if held is None or held.ttl is None else held.ttl / 1_000_000,
        "acquired_at": held and _iso(held.acquired_at),
        "expires_at": held and _iso(held.expires_at),
        "nonce": file.nonce,
        "waiting": [{"ticket": w.ticket, "owner": w.owner, "until": _iso(w.until)} for w in file.waiting],
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
    """Read it; ``name`` None: that of any lease.

    Raises BackendUnavailable for what is no lock file of this lease, MigrationNeeded for a newer format.
    """
    try:
        document = json.loads(data)
        found = document["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise unreadable(where, "it is not a lock file, or a part of one") from None
    if found != FORMAT:
        if isinstance(found, str) and found.startswith(_FAMILY):
            raise MigrationNeeded(f"{where} has the format {found[:40]!r}; this program knows {FORMAT}: upgrade it")
        raise unreadable(where, f"its format is not {FORMAT}")
    try:
        file = _read(document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise unreadable(where, f"something is missing, or not as it should be, in this {FORMAT}") from None
    if name not in (None, file.name):
        raise unreadable(where, f"it is the lock file of {file.name!r}")
    return file


def unreadable(where: str, why: str) -> BackendUnavailable:
    """Return the error for an object that is not what it should be."""
    return BackendUnavailable(
        f"{where} was left as it is: {why}; look at it, and remove it if no holder is at work, or keep leases elsewhere"
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
    waiting = tuple([Waiter(_text(w["ticket"]), _text(w["owner"]), _micros(w["until"])) for w in document["waiting"]])
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
    return LockFile(_text(document["name"]), token, nonce, holding, waiting, history)


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
