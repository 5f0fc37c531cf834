"""The part of a commit that its rows keep: leases, the evidence of rights, the raised scopes, the caller's reason.

Only four sorts of commits have a note: under leases, allowed by a user's rights, taking rights away, or with a reason.
All others write nothing more. The first row keeps all of it, each other row the leases and the reason.
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
    """Return the note that the first row of a commit keeps; None: it keeps nothing."""
    raised = {g.id: g.scope_version + 1 for g in commit.guards if g.bump}
    if raised or commit.reason is not None:
        return _note(commit.evidence, raised, _pairs(commit), commit.reason)
    if commit.evidence:
        return _note(commit.evidence, {}, _pairs(commit)) if commit.leases else _of_evidence(commit.evidence)
    return fences(commit.leases) if commit.leases else None


def note_below(commit: Commit) -> str | None:
    """Return the note that each other row of a commit keeps; None: it keeps nothing."""
    if commit.reason is not None:
        return _note((), {}, _pairs(commit), commit.reason)
    return fences(commit.leases) if commit.leases else None


def note_of_intent(entry: Entry) -> str | None:
    """Return the note that the row of a written-down operation keeps; None: it keeps nothing."""
    if entry.evidence or entry.reason is not None:
        return _note(entry.evidence, {}, (), entry.reason)
    return None


def _pairs(commit: Commit) -> list[tuple[int, int]]:
    return [(lease.id, lease.token) for lease in commit.leases]


@lru_cache(1024)
def _of_evidence(evidence: tuple[tuple[int, int], ...]) -> str:
    """Return the note of a user's write. It is the same for siblings, write after write."""
    return _note(evidence, {}, ())


def _note(
    evidence: Iterable[tuple[int, int]],
    raised: Mapping[int, int],
    leases: Iterable[tuple[int, int]],
    reason: str | None = None,
) -> str:
    """Return a note as JSON. Nothing in it looks like the pair of a lease, for which databases search the text.

    So the ids of evidence are keys, and a reason has no bracket.
    """
    parts = {"leases": [list(pair) for pair in leases], "evidence": dict(evidence), "raised": raised}
    text = json.dumps({name: part for name, part in parts.items() if part})
    if reason is None:
        return text
    said = '"reason": ' + json.dumps(reason).replace("[", r"\u005b")
    return "{" + ", ".join(part for part in (text[1:-1], said) if part) + "}"


def reason_in(text: str | None) -> str | None:
    """Return the reason that a row keeps; None: it keeps none. Raises ValueError if it is not a note."""
    return None if text is None or '"reason"' not in text else read_note(text).reason


def read_note(text: str) -> Note:
    """Return a row's note. Raises ValueError if it is not a note."""
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
