"""What a commit's row keeps of that on which the commit rested: leases, the evidence of rights, and what it raised.

Only a commit under leases has such a note, one that a user's rights allowed, and one that takes rights away. All others
write nothing more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from metastore.port.commit import Commit
from metastore.port.leases import fences

__all__ = ["Note", "note", "note_of", "read_note"]


class Note(NamedTuple):
    """A row's note, as it was read."""

    leases: tuple[tuple[int, int], ...] = ()
    """Pairs of a lease's id and its token."""
    evidence: Mapping[int, int] = {}
    """The scope versions on which the right to write rested, by id."""
    raised: Mapping[int, int] = {}
    """The scope versions that the commit made, of entities that it did not write, by id."""


def note_of(commit: Commit) -> str | None:
    """Return what the first row of a commit keeps; None: nothing."""
    raised = {g.id: g.scope_version + 1 for g in commit.guards if g.bump}
    if commit.evidence and not raised and not commit.leases:
        return _of_evidence(commit.evidence)
    if raised or commit.evidence:
        return note(commit.evidence, raised, [(lease.id, lease.token) for lease in commit.leases])
    return fences(commit.leases) if commit.leases else None


@lru_cache(1024)
def _of_evidence(evidence: tuple[tuple[int, int], ...]) -> str:
    """Return the note of a user's write. It is the same for siblings, write after write."""
    return note(evidence)


def note(
    evidence: Iterable[tuple[int, int]],
    raised: Mapping[int, int] | None = None,
    leases: Iterable[tuple[int, int]] = (),
) -> str:
    """Return a note as JSON. The ids of evidence are keys, so that no pair of a lease looks like one of them."""
    parts = {"leases": [list(pair) for pair in leases], "evidence": dict(evidence), "raised": raised or {}}
    return json.dumps({name: part for name, part in parts.items() if part})


def read_note(text: str) -> Note:
    """Return what a row keeps. Raises ValueError if it is not a note."""
    try:
        parts = json.loads(text)
        if isinstance(parts, list):
            parts = {"leases": parts}
        leases = tuple([(int(lease), int(token)) for lease, token in parts.get("leases", ())])
        return Note(leases, *({int(i): int(scope) for i, scope in parts.get(n, {}).items()} for n in _BY_ID))
    except (TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"this is not a note of leases and evidence: {error}") from error


_BY_ID = ("evidence", "raised")
