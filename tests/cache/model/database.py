"""The model's database: transaction ids, snapshots, one value, announcements, members, and what a crash takes back."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Crashed", "Database", "Session", "Snapshot", "visible"]

Snapshot = tuple[int, frozenset[int]]
"""The next transaction id, and those that run: as ``pg_current_snapshot``."""


class Crashed(Exception):
    """The session ended: a crash, or a cut. Whether the statement was applied is not known."""


def visible(xid: int, snapshot: Snapshot) -> bool:
    """As ``pg_visible_in_snapshot``."""
    return xid < snapshot[0] and xid not in snapshot[1]


@dataclass
class Rows:
    """What is committed."""

    value: int = 0
    announcements: dict[int, int] = field(default_factory=dict)
    """The transaction id of each announcement, by its id."""
    members: dict[tuple[int, int], tuple[int, Snapshot]] = field(default_factory=dict)
    """Renewals and ``seen``, by member and incarnation."""
    next_xid: int = 1
    """No lower id is known to be used: after a crash, ids are given again from here."""
    next_id: int = 1

    def copy(self) -> Rows:
        """Return the same rows."""
        return Rows(self.value, dict(self.announcements), dict(self.members), self.next_xid, self.next_id)

    def state(self) -> object:
        """Return all of it, hashable."""
        rows = tuple(sorted(self.announcements.items())), tuple(sorted(self.members.items()))
        return self.value, rows, self.next_xid, self.next_id


@dataclass
class Session:
    """A connection: it ends with the server's life."""

    life: int


class Database:
    """See the module. Each method is one atomic step. A commit is durable unless it says otherwise."""

    def __init__(self) -> None:
        self.now = Rows()
        self.on_disk = Rows()
        self.running: set[int] = set()
        self.next_xid = 1
        self.generation = 1
        self.generation_on_disk = 1
        self.life = 1
        self.locked_by = 0
        """The transaction that holds the value's row."""

    def state(self) -> object:
        """Return all of it, hashable."""
        return (
            self.now.state(),
            self.on_disk.state(),
            frozenset(self.running),
            (self.next_xid, self.generation, self.generation_on_disk, self.life, self.locked_by),
        )

    def connect(self) -> Session:
        """Open a session."""
        return Session(self.life)

    def check(self, session: Session) -> None:
        """Raise Crashed if the server has crashed since the session began."""
        if session.life != self.life:
            raise Crashed

    def snapshot(self) -> Snapshot:
        """Return what a statement that begins now sees."""
        return self.next_xid, frozenset(self.running)

    def begin(self) -> int:
        """Draw a transaction id; the transaction runs."""
        xid = self.next_xid
        self.next_xid += 1
        self.running.add(xid)
        return xid

    def end(self, xid: int, *, durable: bool = True) -> None:
        """Let a transaction's changes, which were just made in ``now``, become visible."""
        self.running.discard(xid)
        if self.locked_by == xid:
            self.locked_by = 0
        self.now.next_xid = max(self.now.next_xid, xid + 1)
        if durable:
            self.flush()

    def flush(self) -> None:
        """Write the log to disk: all that was committed so far survives a crash."""
        self.on_disk, self.generation_on_disk = self.now.copy(), self.generation

    def xmin(self) -> int:
        """Return the oldest transaction that runs."""
        return min(self.running, default=self.next_xid)

    def crash(self) -> None:
        """Lose what is not on disk, and every session. Transaction ids that were lost are given again."""
        self.now = self.on_disk.copy()
        self.generation = self.generation_on_disk
        self.running.clear()
        self.next_xid = self.now.next_xid
        self.locked_by = 0
        self.life += 1
