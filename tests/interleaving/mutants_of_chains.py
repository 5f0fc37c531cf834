"""Faults planted in chains, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from metastore.combine.chain import Chain
from metastore.combine.group import Group
from metastore.combine.link import SETTLED, Link
from metastore.port.batches import Altered
from metastore.port.commit import Commit, CommitOutcome, Committed, Conflicted
from metastore.transaction.chained import InChain
from tests.interleaving.batches import MemoryBatches
from tests.interleaving.mutant import Mutant

__all__ = ["OF_CHAINS"]

_LOST = "3 after the announcement"
_commit, _answer, _alters, _send = Chain._commit, Chain._answer, Group.alters, InChain.send


def _told_early(chain: Chain, group: Group, *more: Any) -> Altered | None:
    """Each gets its result before the commit on which it rests."""
    group.tell(Altered(1), None)
    return _commit(chain, group, *more)


def _an_error_told_early(run: InChain, commit: Commit, *more: Any) -> CommitOutcome | None:
    """A function that had its turn, and writes nothing, tells its error or value at once, on what is not committed."""
    if commit.writes or run._seat is None:
        return _send(run, commit, *more)
    run._seat.link.end("value")
    return Committed(())


def _half(group: Group) -> Any:
    """The last step is told, and not sent."""
    whole = _alters(group)
    return whole._replace(steps=whole.steps[: max(1, len(whole.steps) - 1)])


def _told_twice(chain: Chain, link: Link, group: Group, altered: Any) -> Any:
    """A function runs again although nobody knows whether its step was applied."""
    answer = _answer(chain, link, group, altered)
    return Conflicted("self", chain._id) if answer is link.doubt else answer


def _unseen(group: Group, *_: object) -> None:
    """Each function sees what the first one saw, and its step goes behind the others' all the same."""
    group.record = group.record._replace(version=group.record.version + 1)


def _settled_anyway(chain: Chain, link: Link, group: Group, altered: Any) -> Any:
    """A value that rests on a chain that was lost is told."""
    return SETTLED if link.step is None else _answer(chain, link, group, altered)


def _overlooking(group: Group) -> Any:
    """The commit does not fail on an announced change that the chain has not read."""
    return _alters(group)._replace(helps=True)


def _in(owner: type, name: str, fault: Callable[..., Any]) -> Callable[[], AbstractContextManager[None]]:
    @contextmanager
    def broken() -> Iterator[None]:
        with patch.object(owner, name, fault):
            yield

    return broken


def _mutant(
    name: str,
    program: str,
    owner: type,
    method: str,
    fault: Callable[..., Any],
    says: str = "no order explains",
) -> Mutant:
    return Mutant(name, program, says, MemoryBatches, broken=_in(owner, method, fault))


OF_CHAINS: tuple[Mutant, ...] = (
    _mutant("a chain's results told early", "chains in a row, alter", Chain, "_commit", _told_early),
    _mutant("an error told early", "chains in a row, alter", InChain, "send", _an_error_told_early),
    _mutant("a lost chain's value told", "chains in a row, alter", Chain, "_answer", _settled_anyway),
    _mutant("half a chain", "chain, rename", Group, "alters", _half),
    _mutant("a chain's step sent twice", "chain, alter, a lost answer", Chain, "_answer", _told_twice),
    _mutant("functions that do not see each other", "chain, rename", Group, "_stepped", _unseen),
    _mutant("chains overlook a change", "four chains in a row, hot alter", Group, "alters", _overlooking, _LOST),
    _mutant(
        "chains of alters overlook it",
        "four chains of alters in a row, hot alter",
        Group,
        "alters",
        _overlooking,
        _LOST,
    ),
)
