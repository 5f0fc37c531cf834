"""Find entities by name, kind and properties, at any depth: page by page, each page true at one instant.

A search either scans the index of names, or walks the tree from the scope down, whichever reads less. Both keep in
memory one page, and the ids of the containers that they still have to visit. The index has names in the spelling in
which they were given, so the search always walks a catalog that folds case.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from metastore.arguments import positive_seconds
from metastore.deadlines import check_time
from metastore.errors import EntityNotFound
from metastore.kinds.entity import Entity
from metastore.kinds.kind import to_json
from metastore.kinds.registry import KINDS, kind_named
from metastore.managers.pages.page import just_before
from metastore.managers.search import CheckedSearch, live
from metastore.managers.text import RELATED, text_of
from metastore.names import fold
from metastore.operation.session import Session
from metastore.operation.timed import stepping, timing
from metastore.port.backend import Backend
from metastore.port.conditions import ROOT_ID
from metastore.port.records import Node, Record
from metastore.port.search import Container, Matches, Search, Sizes, Span

Ask = Callable[[Search], Matches]

_PAGE: Final = 500
_TOGETHER: Final = 250
"""How many containers' children one statement scans at most."""
_MORE, _MOST = 4, 40
"""The factor by which a scan of names grows after a page with few matches, and the most pages that it reads at once."""
_FEW: Final = 1000
"""How many rows the first comparison of the two ways counts at most."""
_ROW, _STATEMENT = 2, 300
"""The cost of a walk, in rows of a scan of names: for each row, and for each container in a separate statement."""
_BEYOND: Final = "\U0010ffff" * 256
"""A text that sorts after every name."""
_ROOT: Final = Container(ROOT_ID, "root", False)
_OTHERWISE: Final = ("env:", "file:", "sealed:", "redacted", "secret:")
"""The prefixes of values that may be secrets."""


def find(
    session: Session, looked_for: CheckedSearch, scope_path: str, timeout: float | None = None
) -> Iterator[Entity]:
    """Yield the matching entities, in no promised order.

    ``scope_path`` is the scope's path, for messages. If that path leads to another container before the first entity
    was yielded, the search begins again there.

    Raises EntityNotFound if the scope is dropped meanwhile, or if it was renamed or moved when a later entity was read.
    Raises DeadlineExceeded if a step finds nothing within the store's deadline, or if all steps together take longer
    than ``timeout``. Raises InvalidArgument at once.
    """
    seconds = math.inf if timeout is None else positive_seconds(timeout, "a timeout")
    ask = _in_time(session, timing(session, "find", session.backend.find))
    return stepping(session, _find(session, ask, looked_for, scope_path), session.clock.monotonic() + seconds)


def _in_time(session: Session, ask: Ask) -> Ask:
    def asked(search: Search) -> Matches:
        check_time(session.clock)
        return ask(search)

    return asked


def _find(session: Session, ask: Ask, looked_for: CheckedSearch, scope_path: str) -> Iterator[Entity]:
    is_first = True
    while True:
        for entity in _matching(session, Looking(session.backend, ask, looked_for)):
            if not looked_for.is_there(entity.record.chain):
                break
            is_first = False
            yield entity
        else:
            if looked_for.scope is None:
                return
            if not (is_first and looked_for.chain):
                live(session.backend, looked_for.scope.id, scope_path)
                return
            # without an entity, nothing has shown where the scope was while it was searched
            if looked_for.is_unchanged(session.backend, looked_for.now(session.backend)):
                return
        if not is_first:
            message = f"{scope_path} was renamed or moved while it was searched; search again"
            raise EntityNotFound(scope_path, message)
        check_time(session.clock)
        looked_for = looked_for.again(session.backend)


def _matching(session: Session, looking: Looking) -> Iterator[Entity]:
    looked_for = looking.wanted
    text = text_of(session, looked_for.text, named(session, looked_for.scope))
    for entity in _found(session, looking):
        if looked_for.properties.items() <= entity.properties.items() and (text is None or text.is_in(entity)):
            yield entity


def _found(session: Session, looking: Looking) -> Iterator[Entity]:
    origin = session.backend.origin
    for record in looking.records():
        yield kind_named(record.chain[-1].kind).entity(record, origin)


def named(session: Session, scope: Node | None) -> Iterator[Entity]:
    """Yield all tags, users and groups of the scope's metalake, or of all metalakes."""

    def looking(scope: Node | None, kind: str) -> Looking:
        ask = _in_time(session, session.backend.find)
        return Looking(session.backend, ask, CheckedSearch(scope, kind, "*", {}, recursive=False))

    known = None if scope is None else session.backend.by_id([scope.id])[0]
    records = looking(None, "metalake").records() if known is None else [known.record]
    for record in records:
        for kind in RELATED:
            yield from _found(session, looking(record.chain[0], kind))


@dataclass(frozen=True)
class Looking:
    """The two ways of a search: a scan of all names, or a walk from the scope down."""

    backend: Backend
    ask: Ask
    wanted: CheckedSearch

    @property
    def _top(self) -> Container:
        scope = self.wanted.scope
        return _ROOT if scope is None else Container(scope.id, scope.kind, scope.fold)

    @property
    def prefix(self) -> str:
        """The text before the first wildcard of the glob."""
        return re.split(r"[*?]", self.wanted.glob, maxsplit=1)[0]

    @property
    def _before(self) -> str:
        """The upper bound of the scan of names; if only one name can match, the smallest text that sorts after it."""
        return self.prefix + ("\x01" if self.prefix == self.wanted.glob else _BEYOND)

    def records(self) -> Iterator[Record]:
        """Yield the records whose names and kinds match, and whose documents may match."""
        if self.walks():
            yield from self._below(self._top)
            return
        if not self.prefix:
            yield from self._by_name(("", -1))
            return
        # below a catalog that folds case, the walk finds the entities: the index has names as they were given
        yield from (record for record in self._by_name((self.prefix, -1)) if not record.folded)
        scope = self.wanted.scope
        if scope is None or scope.kind == "metalake":
            for catalog in self._folding(scope):
                yield from self._below(catalog)

    def walks(self) -> bool:
        """Whether a walk reads less than a scan of names. It counts both only as far as the comparison needs."""
        scope, kind = self.wanted.scope, self.wanted.kind
        if not self.wanted.recursive or (scope is not None and (scope.fold or not self.prefix)):
            return True
        if scope is None and not kind:
            return False
        # a walk for one kind reads only the containers on the way to it, each in a statement of its own
        families = tuple(sorted({k.family for k in KINDS.values() if k.container})) if kind else None
        weight = _STATEMENT if kind else _ROW
        span, most = Span(self.prefix, self._before, self._top.id, families), _FEW
        while True:
            sizes = self.backend.search_sizes(span, Sizes(most, most // weight + 1))
            if sizes.below * weight <= most:
                return True
            if sizes.names < most:
                return False
            most *= _MORE

    # --- the scan of names

    def names(self, after: tuple[Any, ...]) -> Search:
        """Return the search of the names after (name, id)."""
        after = max(after, (self.prefix, -1))
        return self._search(-1, by_name=True, after=after, before=self._before)

    def _by_name(self, after: tuple[Any, ...]) -> Iterator[Record]:
        yield from self._pages(self.names(after), [])

    def _folding(self, metalake: Node | None) -> list[Container]:
        """Return the catalogs that fold case, of one metalake or of all metalakes."""
        above = self._children(ROOT_ID, "metalake") if metalake is None else [metalake]
        return [one for lake in above for one in self._children(lake.id, "catalog") if one.fold]

    def _children(self, parent: int, kind: str) -> list[Container]:
        """Return the children of a kind; its family has no other kind."""
        found = list[Container]()
        every = CheckedSearch(None, kind, "*", {}, recursive=False)
        looking = Looking(self.backend, self.backend.find, every)
        for _ in looking._pages(looking._in_family(parent, kind), found):
            pass
        return [one for one in found if one.kind == kind]

    # --- the walk from the scope down

    def _below(self, top: Container) -> Iterator[Record]:
        waiting, most = [top], 1
        while waiting:
            group, below = _alike(waiting, most), list[Container]()
            for search in self._parts(group[0]):
                yield from self._of_all(search, group, below)
            # put so many small containers into one statement that they fill half a page, as the last statement shows
            most = min(max(len(group) * _PAGE // (2 * max(len(below), 1)), 1), _TOGETHER)
            if self.wanted.recursive:
                waiting += [one for one in below if kind_named(one.kind).container]

    def _of_all(self, search: Search, group: Sequence[Container], below: list[Container]) -> Iterator[Record]:
        """Yield the matches below each container of a group; halve a group that has more than a page."""
        if len(group) == 1:
            yield from self._pages(replace(search, parent=group[0].id), below)
            return
        batch = self.ask(replace(search, parent=-1, parents=tuple(one.id for one in group)))
        if batch.last is None:
            below += batch.scanned
            yield from batch.records
            return
        middle = len(group) // 2
        yield from self._of_all(search, group[:middle], below)
        yield from self._of_all(search, group[middle:], below)

    def _parts(self, above: Container) -> Iterator[Search]:
        """Yield the searches of a container's children: all kinds, or the wanted kind and the containers on the way."""
        kind = self.wanted.kind
        if not kind:
            yield self._search(above.id, by_name=False, after=("", ""))
            return
        here = [k for k in KINDS.values() if above.kind in (k.parents or (_ROOT.kind,))]
        ways = {k.family for k in here if k.container and self.wanted.recursive}
        for family in sorted({k.family for k in here if k.name == kind} | ways):
            whole = family in ways or above.fold or not self.prefix
            yield self._in_family(above.id, family, "" if whole else self.prefix, _BEYOND if whole else self._before)

    def _in_family(self, parent: int, family: str, prefix: str = "", before: str = _BEYOND) -> Search:
        after = (family, just_before(prefix))
        return replace(self._search(parent, by_name=False, after=after, before=before), family=family)

    # --- pages

    def _search(self, parent: int, *, by_name: bool, after: tuple[Any, ...], before: str = "") -> Search:
        glob = self.wanted.glob
        search = Search(self._top.id, self.wanted.kind, glob, fold(glob), parent, by_name, after, before, _PAGE)
        return replace(search, fragment=_fragment(self.wanted.properties), most=_PAGE)

    def _pages(self, search: Search, containers: list[Container]) -> Iterator[Record]:
        """Yield the matching records; add the scanned children to ``containers``."""
        while True:
            batch = self.ask(search)
            containers += batch.scanned
            yield from batch.records
            if batch.last is None:
                return
            search = following(search, batch)


def following(search: Search, batch: Matches) -> Search:
    """Return the search of the page after ``batch``, which is not the last one.

    After a page with few matches, a scan of names reads more rows at once. Matches that the user does not see count as
    matches: a statement returns at most one page of them, so a longer scan would read rows in vain.
    """
    few = search.by_name and batch.fit * _MORE < search.most
    limit = min(search.limit * _MORE, _PAGE * _MOST) if few else _PAGE
    return replace(search, after=batch.last or search.after, limit=limit)


def _alike(waiting: list[Container], most: int) -> list[Container]:
    """Take from the end up to ``most`` containers for one statement: they have the same kind and case rule."""
    group = [waiting.pop()]
    while waiting and len(group) < most and (waiting[-1].kind, waiting[-1].fold) == (group[0].kind, group[0].fold):
        group.append(waiting.pop())
    return group


def _fragment(properties: Mapping[str, str]) -> str:
    """Return the longest text, as stored, that each document with these properties must contain.

    If a value may be a secret, its stored form differs, so only its key is used.
    """
    pairs = [(key, value, value.startswith(_OTHERWISE)) for key, value in properties.items()]
    texts = [f"{to_json(key)}:" if hidden else to_json({key: value})[1:-1] for key, value, hidden in pairs]
    return max(texts, key=len, default="")
