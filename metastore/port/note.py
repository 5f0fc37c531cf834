"""The note of a commit, which its rows keep: leases, evidence of rights, raised scopes, the caller's reason.

Only four sorts of commits have a note: those under leases, those allowed by a user's rights, those that take rights
away, and those with a reason. The first row keeps the whole note, each other row only the leases and the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from metastore.port.commit import Commit
from metastore.port.intents import Entry
from metastore.port.leases import fences


class Note(NamedTuple):
    """A row's note, as it was read."""

    leases: tuple[tuple[int, int], ...] = ()
    """Pairs of a lease's id and its token."""
    evidence: Mapping[int, int] = {}
    """The scope versions on which the right to write rested, by id."""
    raised: Mapping[int, int] = {}
    """The scope versions that the commit raised without writing the entity, by id."""
    reason: str | None = None
    """The reason for the operation, in its caller's words."""


def note_of(commit: Commit) -> str | None:
    """Return the note in the first row of a commit; None: no note."""
    raised = {g.id: g.scope_version + 1 for g in commit.guards if g.bump}
    if raised or commit.reason is not None:
        return _note(commit.evidence, raised, _pairs(commit), commit.reason)
    if commit.evidence:
        return _note(commit.evidence, {}, _pairs(commit)) if commit.leases else _of_evidence(commit.evidence)
    return fences(commit.leases) if commit.leases else None


def note_below(commit: Commit) -> str | None:
    """Return the note in each other row of a commit; None: no note."""
    if commit.reason is not None:
        return _note((), {}, _pairs(commit), commit.reason)
    return fences(commit.leases) if commit.leases else None


def note_of_intent(entry: Entry) -> str | None:
    """Return the note in the row of a written-down operation; None: no note."""
    if entry.evidence or entry.reason is not None:
        return _note(entry.evidence, {}, (), entry.reason)
    return None


def _pairs(commit: Commit) -> list[tuple[int, int]]:
    return [(lease.id, lease.token) for lease in commit.leases]


@lru_cache(1024)
def _of_evidence(evidence: tuple[tuple[int, int], ...]) -> str:
    """Return the note of a user's write. It is cached, because siblings have the same note."""
    return _note(evidence, {}, ())


def _note(
    evidence: Iterable[tuple[int, int]],
    raised: Mapping[int, int],
    leases: Iterable[tuple[int, int]],
    reason: str | None = None,
) -> str:
    """Return a note as JSON, in which nothing else looks like the pair of a lease: databases search the text for it.

    So evidence has its ids as keys, and a reason has no bracket.
    """
    parts = {"leases": [list(pair) for pair in leases], "evidence": dict(evidence), "raised": raised}
    text = json.dumps({name: part for name, part in parts.items() if part})
    if reason is None:
        return text
    said = '"reason": ' + json.dumps(reason).replace("[", r"\u005b")
    return "{" + ", ".join(part for part in (text[1:-1], said) if part) + "}"


def reason_in(text: str | None) -> str | None:
    """Return the reason in a row's note; None: no reason. Raises ValueError for a text that is not a note."""
    return None if text is None or '"reason"' not in text else read_note(text).reason


def read_note(text: str) -> Note:
    """Return a row's note. Raises ValueError for a text that is not a note."""
    try:
        parts = json.loads(text)
        if isinstance(parts, list):
            parts = {"leases": parts}
        leases = tuple([(int(lease), int(token)) for lease, token in parts.get("leases", ())])
        by_id = [{int(i): int(scope) for i, scope in parts.get(name, {}).items()} for name in _BY_ID]
        reason = parts.get("reason")
        if reason is not None and not isinstance(reason, str):
            raise TypeError("a reason is a text")
        return Note(leases, by_id[0], by_id[1], reason)
    except (TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"this is not a note of a commit: {error}") from error


_BY_ID = ("evidence", "raised")
