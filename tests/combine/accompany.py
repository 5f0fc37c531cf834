"""Give each call that may travel in a chain somebody to travel with: the chain is made by the test, not by chance."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from metastore.combine import chain, writes
from metastore.combine.chain import Chain, chain_at
from metastore.combine.handle import Term
from metastore.combine.link import ChainLane, Rider
from metastore.combine.writes import Writes
from metastore.deadlines import until
from metastore.errors import MetastoreError
from metastore.operation.session import Session
from metastore.port.records import Lookup
from metastore.transaction.line import InLine, _address

__all__ = ["always_chained"]


def always_chained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let each function and each alter follow a caller that alters nothing. Return how many went with each of these.

    A function that does more than a chain can carry, and what cannot be announced, go alone all the same.
    """
    sizes: list[int] = []

    class Accompanied(Chain):
        def __init__(self, session: Session, entity_id: int) -> None:
            super().__init__(session, entity_id)
            self.lane = _Lane(self, sizes)

        @property
        def is_open(self) -> bool:
            return self._clock.runner() not in self._inside

    monkeypatch.setattr(chain, "Chain", Accompanied)
    monkeypatch.setattr(writes, "chain_for", _chain_for)
    monkeypatch.setattr(InLine, "meet", _meets)
    monkeypatch.setattr(Writes, "__init__", _begins)
    return sizes


_meet, _begin = InLine.meet, Writes.__init__


def _meets(line: InLine, lookups: Sequence[Lookup], ids: Sequence[int]) -> Any:
    """Let a function count as one of a hot entity, and so take part in its chain."""
    session = line._session
    if line.chained._function is not None and not line._ids:
        found = {_at(session, one): _address(one) for one in lookups} | dict.fromkeys(ids)
        for entity_id, address in found.items():
            if entity_id is not None:
                session.hot.note(entity_id, address)
    return _meet(line, lookups, ids)


def _begins(lane: Writes, session: Session, *more: Any) -> None:
    _begin(lane, session, *more)
    session.chains.set(None, None)  # alters ask for their chain only if there is any


def _chain_for(session: Any, request: Any) -> Chain | None:
    """Return the chain of an alter, hot or not."""
    merge = request.merge
    if merge is None or request.verb != "alter":
        return None
    with suppress(MetastoreError):  # the call itself raises it
        where = request.where()
        found = _at(session, where) if isinstance(where, Lookup) else merge.entity_id
        if found is not None:
            session.hot.cool(found)  # one that leaves the chain goes as it would go alone
            its = chain_at(session, found)
            return its if its.is_open else None
    return None


def _at(session: Session, path: Lookup) -> int | None:
    (found,) = session.backend.resolve([path])
    return None if found.record is None else found.record.chain[-1].id


class _Lane(ChainLane):
    """A lane in which nobody leads but the companion of the one that came, and those that its chain puts back."""

    def __init__(self, chain: Chain, sizes: list[int]) -> None:
        super().__init__(chain._clock)
        self._chain, self._sizes = chain, sizes

    def lead(self) -> Term | None:
        return None

    def submit(self, request: Any, ends: float) -> Rider:
        term = super().lead()
        handle = super().submit(request, ends)
        if term is not None:
            Thread(target=self._accompany, args=(term, ends), daemon=True).start()
        return handle

    def _accompany(self, term: Term, ends: float) -> None:
        """Lead a chain, as an alter that changes nothing."""
        own = super().submit(_Companion(self._chain._id), ends)
        self.leave(term, own)

        def together(handles: Any) -> Any:
            with until(ends):
                self._sizes.append(len(handles) - 1)
                return self._chain.together(handles)

        with suppress(TimeoutError):
            self.result(own, lambda _: None, together)


class _Companion:
    """An alter that changes nothing, as a chain sees it."""

    path = below = doubt = None
    may_return = False
    request = SimpleNamespace(verb="alter")

    def __init__(self, entity_id: int) -> None:
        self.record = SimpleNamespace(chain=[SimpleNamespace(id=entity_id)])
        self.taken, self.under_way = False, set[object]()

    def decide(self, record: object) -> None:
        """Return what the call returns: nothing."""

    def note(self, *_: object) -> None:
        """Do nothing: it is told nothing that it would count."""

    overtaken = outdated = hindered = queued = ended = note
