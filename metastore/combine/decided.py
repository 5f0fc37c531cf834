"""What the requests of a batch come to on what the batch found: the steps that every kind of write has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from metastore.combine.lane import Handle
from metastore.combine.waiting import Waiting
from metastore.errors import MetastoreError
from metastore.operation.request import Proposal
from metastore.port.batches import Batches, Below
from metastore.port.commit import Conflicted, Result, Unknown
from metastore.port.records import Record

__all__ = ["MOST_BYTES", "Decided", "Waiter", "bases", "commit", "missing"]

T = TypeVar("T")
Waiter = Handle[Waiting[Any], Any]

PATIENCE: Final = 50
"""How long a batch waits for others' locks (milliseconds). Then it passes over the rows that are locked."""
MOST_BYTES: Final = 4 << 20
"""How many bytes of documents one batch writes at most."""
_SENT: Final = Unknown("the batch was interrupted")


@dataclass(slots=True)
class Decided:
    """What one request came to on the record that was found: a value, an error, or a proposal."""

    handle: Waiter
    value: Any = None
    error: MetastoreError | None = None
    proposal: Proposal[Any] | None = None
    version: int = 0
    """Of a proposal that alters: the version that it makes."""
    true: bool = False
    """It is true whether the batch is applied or not: it rests on what was read in this batch."""

    def tell(self, result: Result | None = None) -> None:
        """Give the request its answer; ``result``: of its proposal, which was applied."""
        one = self.handle.request
        if self.error is not None:
            one.ended("error")
            self.handle.fail(self.error)
        elif self.proposal is None:
            one.ended("value")
            self.handle.answer(self.value)
        else:
            one.ended("self")
            self.handle.answer(self.proposal.finish((result,)))


def bases(backend: Batches, handles: Sequence[Waiter]) -> list[Record | bool]:
    """Return the record that each request begins with: the one in hand, else what one message finds for all of them.

    False: there is nothing at its path. True: its parents are not where they were, so that it must read alone.
    """
    asked: list[Below] = []
    for handle in handles:
        one = handle.request
        one.taken = True
        if one.record is None and one.below is not None:
            asked.append(one.below)
    wanted = list(dict.fromkeys(asked))
    found = dict(zip(wanted, backend.find_below(wanted), strict=True)) if wanted else {}
    requests = [handle.request for handle in handles]
    return [one.record or (True if one.below is None else found[one.below]) for one in requests]


def missing(handle: Waiter) -> list[Decided]:
    """Decide a request whose path leads to nothing."""
    try:
        value = handle.request.decide(None)
    except MetastoreError as error:
        return [Decided(handle, error=error, true=True)]
    except Exception:  # noqa: BLE001  (Left, or a bug in the request: its owner meets it alone)
        return []
    return [] if isinstance(value, Proposal) else [Decided(handle, value=value, true=True)]


def commit(members: Sequence[Decided], send: Callable[[int], list[T] | Conflicted | Unknown]) -> list[T] | None:
    """Send what ``members`` propose; ``send`` gets the patience. None: not applied, or each request is in doubt.

    The full operation of a request in doubt finds out by its operation id what became of it.
    """
    sent = [member.handle.request for member in members if member.proposal is not None]
    for one in sent:
        one.doubt = _SENT
    outcome: list[T] | Conflicted | Unknown
    try:
        outcome = send(PATIENCE)
        if isinstance(outcome, Conflicted) and outcome.cause == "busy":
            outcome = send(0)
    except MetastoreError:  # the database refused it, or was not asked: nothing was applied
        outcome = Conflicted("serialization")
    for one in sent:
        one.doubt = outcome if isinstance(outcome, Unknown) else None
    return outcome if isinstance(outcome, list) else None
