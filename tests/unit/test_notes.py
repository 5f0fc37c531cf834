"""What a commit keeps of its leases, its evidence and what it raised: any of them, whatever else there is."""

from __future__ import annotations

from itertools import product
from uuid import UUID

import pytest

from metastore.port.commit import Commit
from metastore.port.conditions import Guard, LeaseToken
from metastore.port.note import Note, note_of, read_note

_LEASES = (LeaseToken("a", 3, 7, "x"), LeaseToken("b", 4, 8, "y"))
_EVIDENCE = ((5, 2), (6, 1))
_GUARDS = (Guard(1, 9), Guard(2, 4, exclusive=True, bump=True))


@pytest.mark.parametrize(("leases", "evidence", "guards"), list(product([(), _LEASES], [(), _EVIDENCE], [(), _GUARDS])))
def test_all_that_a_commit_rests_on(
    leases: tuple[LeaseToken, ...], evidence: tuple[tuple[int, int], ...], guards: tuple[Guard, ...]
) -> None:
    text = note_of(Commit(UUID(int=1), None, guards=guards, leases=leases, evidence=evidence))
    kept = Note(tuple((lease.id, lease.token) for lease in leases), dict(evidence), {2: 5} if guards else {})
    assert (text is None) == (kept == Note())
    assert read_note(text or "[]") == kept
