"""Check the tokens of leases, and that each commit under a lease had its token.

Invariant 9: in the order of the feed, every commit under a token comes after the event that granted the token, and
before the next event of the lease. Commits and events draw their positions while they hold the lease's row, so the feed
has the order in which the database decided. It keeps in memory a few numbers for each lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from metastore.port.leases import PER_TIMELINE
from metastore.verify.history import Link
from metastore.verify.violations import Violation

__all__ = ["LEASE", "Fencing", "check_lease"]

LEASE = "lease"
"""The kind of a lease's events."""

_GIVEN = ("acquire", "takeover", "mirror")
_TAKEN = ("release", "break")


class Fencing:
    """Reads the feed, and compares the commits under leases with the events of the leases."""

    def __init__(self) -> None:
        self._tokens: dict[int, tuple[int, bool]] = {}  # by lease: the last token, and whether it was granted
        # by lease: the greatest token of a commit before the first kept event, and its position
        self._seen: dict[int, tuple[int, int]] = {}

    def event(self, lease_id: int, token: int, action: str, path: str | None) -> Iterator[Violation]:
        """Note an event of a lease, and yield the violations."""
        seen, position = self._seen.pop(lease_id, (0, 0))
        if lease_id not in self._tokens and seen >= token:
            yield Violation(
                9, lease_id, path, f"position {position} was committed under token {seen}, which came later, or never"
            )
        self._tokens[lease_id] = token, action in _GIVEN

    def rest(self, *, complete: bool) -> Iterator[Violation]:
        """After the whole feed, yield the commits under leases that have no event."""
        for lease_id, (token, position) in self._seen.items() if complete else ():
            message = f"position {position} was committed under token {token} of lease {lease_id}, which no event gave"
            yield Violation(9, lease_id, None, message)

    def commit(self, seq: int, leases: Iterable[tuple[int, int]], path: str | None) -> Iterator[Violation]:
        """Check a commit under leases; ``leases`` has pairs of id and token."""
        for lease_id, token in leases:
            if lease_id not in self._tokens:
                self._seen[lease_id] = max(self._seen.get(lease_id, (0, 0)), (token, seq))
                continue
            known, given = self._tokens[lease_id]
            if (known, given) != (token, True):
                now = f"token {known}" if given else f"nobody (token {known})"
                message = f"position {seq} was committed under token {token} of lease {lease_id}, which {now} had then"
                yield Violation(9, lease_id, path, message)


def check_lease(
    row_id: int, row: tuple[Any, ...] | None, links: Iterable[Link], *, complete: bool
) -> Iterator[Violation]:
    """Check that each token of a lease is the last one plus one, or the first one of a later timeline.

    The tokens of a lease that another book keeps may grow by any number.

    ``row``: name, token and owner; None: the lease has no row, which happens in a database restored with its history.
    """
    last: Link | None = None
    for link in links:
        for invariant, message in _problems(last, link, complete):
            yield Violation(invariant, row_id, link.path_after, message)
        last = link
    if row is None:
        return
    name, token, owner = row
    if last is None:
        if complete:
            yield Violation(1, row_id, name, f"the lease has token {token}, but no operation gave it")
    elif last.version != token:
        yield Violation(1, row_id, name, f"the lease has token {token}, its events end at {last.version}")
    elif (owner is not None) != (last.action in ("acquire", "takeover")):
        yield Violation(1, row_id, name, f"its last event is {last.action}, and it is held by {owner or 'nobody'}")


def _follows(before: int, token: int) -> bool:
    """Whether a token is the next one, or the first one of a later timeline."""
    return token == before + 1 or (token > before and token % PER_TIMELINE == 1)


def _problems(last: Link | None, link: Link, complete: bool) -> Iterator[tuple[int, str]]:
    token = link.version or 0
    if link.kind != LEASE or link.action not in _GIVEN + _TAKEN:
        yield 1, f"token {token} of a lease is the work of: {link.action} {link.kind}"
        return
    if last is None:
        if complete and not _follows(0, token) and link.action != "mirror":
            yield 1, f"the tokens of the lease begin at {token}, although gc has removed none"
        return
    before = last.version or 0
    if token <= before or not (_follows(before, token) or link.action == "mirror"):
        yield 1, f"after token {before} comes {token} ({link.action})"
    if link.seq is not None and last.seq is not None and link.seq <= last.seq:
        yield 8, f"token {token} is at position {link.seq}, token {before} before it at {last.seq}"
    held = last.action in ("acquire", "takeover")
    if held != (link.action in ("takeover", *_TAKEN)) and "mirror" not in (last.action, link.action):
        yield 1, f"after {last.action} (token {before}) comes {link.action} (token {token})"
