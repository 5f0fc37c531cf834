"""Every interleaving of relations and users with the operations that end them; negative controls omit the guards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from metastore.operation import authorized, helping
from metastore.port.backend import Backend
from metastore.port.commit import Commit, CommitOutcome
from metastore.port.writes import Relate
from tests.interleaving.checks import explore
from tests.interleaving.explore import Found
from tests.interleaving.governed import GOVERNED
from tests.interleaving.programs import Program

_LIMIT = 200_000


@pytest.mark.one_in(2)
@pytest.mark.parametrize("program", GOVERNED, ids=lambda p: p.name)
def test_no_interleaving_breaks_relations_and_rights(program: Program) -> None:
    explored = explore(program, _LIMIT)  # raises Truncated if that was not all
    assert explored.finals > 0
    assert explored.most_undisturbed <= 2
    print(f"{program.name}: {explored.schedules} schedules, {explored.states} states")


class _Unguarded:
    """A process whose relations are written without their guards."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def commit(self, commit: Commit) -> CommitOutcome:
        related = any(isinstance(write, Relate) and not write.removes for write in commit.writes)
        return self._backend.commit(replace(commit, guards=()) if related else commit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


@contextmanager
def _unguarded() -> Iterator[None]:
    guarded = authorized._guarded

    def broken(access: Any, view: Any, proposal: Any, merge: Any) -> Any:
        return replace(proposal, evidence=guarded(access, view, proposal, merge).evidence)

    with patch.object(authorized, "_guarded", broken):
        yield


@contextmanager
def _heedless() -> Iterator[None]:
    with patch.object(helping, "evidence_of", lambda _: {}):
        yield


def _named(name: str) -> Program:
    (found,) = [program for program in GOVERNED if program.name == name]
    return found


PLANTED: dict[str, Callable[[], Program]] = {
    "an end that is not guarded": lambda: replace(_named("attach, drop of the tag"), wrap=_Unguarded),
    "a user's owner that is not guarded": lambda: replace(_named("owner, drop of the user"), wrap=_Unguarded),
    "evidence that is not guarded": lambda: replace(_named("alter as ann, revoke"), broken=_unguarded),
    "evidence that a helper ignores": lambda: replace(_named("alter as ann, two alters and revoke"), broken=_heedless),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_found(planted: str) -> None:
    with pytest.raises(Found, match=r"verify: |no order explains"):
        explore(PLANTED[planted](), _LIMIT)
