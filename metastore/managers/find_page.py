"""Find entities page by page: each call searches for a bounded time and returns a token to continue with.

A search for a name reads the index of names, if a walk of the tree would read more. Everything else walks the tree
depth first, each container kind by kind, in the order of keys.

A token reveals nothing that is hidden from the user: it holds the place of the last entity that the user may see, in
the index or in each container on the way down. The index also has hidden names. If a user's step finds only hidden
names, its token would make no progress; so the search then continues in the tree. There the database skips hidden
children, and the search leaves out the entities that the index has shown.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, Final

from metastore.arguments import positive_seconds, shown
from metastore.deadlines import check_time
from metastore.errors import InvalidArgument, UnreadableRow
from metastore.kinds.entity import Entity
from metastore.kinds.registry import KINDS, kind_named
from metastore.managers.find import Looking, following, named
from metastore.managers.pages.page import Page, TokenScope, clean_size, read_token, write_token
from metastore.managers.search import CheckedSearch
from metastore.managers.text import text_of
from metastore.names import fold
from metastore.operation.guards import guards_of
from metastore.operation.session import Session
from metastore.operation.timed import timed
from metastore.port.conditions import LIVE, ROOT_ID
from metastore.port.records import Child, Node, Record
from metastore.port.search import matches

_ROWS: Final = 200
"""How many children one statement reads: their documents may be large."""
_ALL: Final = "all"
"""The scan of the index is complete: only catalogs that fold case are left."""


@dataclass(frozen=True)
class FoundPage(Page[Entity]):
    """The matches of one step of a search, and its progress.

    A page without items may have a token: continue with it.
    """

    looked: int
    """How many entities the search has looked at so far, among those that the caller may see."""
    at: str | None
    """The path of the last entity that this step looked at; None: it looked at no entity."""

    def to_dict(self) -> dict[str, Any]:
        """Return the page as plain JSON values."""
        return {**super().to_dict(), "looked": self.looked, "at": self.at}


@dataclass
class _Frame:
    """The reading of one container, and its progress: the kind of children, and the key and id of the last one."""

    nodes: tuple[Node, ...]
    """The nodes from below the root to the container, itself last; empty: the root."""
    kind: str
    after: tuple[str, int] = ("", 0)
    rows: deque[Child] = field(default_factory=deque)
    is_last: bool = False
    """Whether the rows are the last ones of this kind."""

    @property
    def id(self) -> int:
        return self.nodes[-1].id if self.nodes else ROOT_ID


def find_page(session: Session, wanted: CheckedSearch, size: int, token: str | None, seconds: float) -> FoundPage:
    """Return the next matches: at most ``size``, found in about this many ``seconds``.

    Raises InvalidArgument for a wrong size, time or token.
    """
    size, seconds = clean_size(size), positive_seconds(seconds, "the time of a step")
    return timed(session, "find", _of_one_scope, session, wanted, size, token, seconds)


def _of_one_scope(session: Session, wanted: CheckedSearch, size: int, token: str | None, seconds: float) -> FoundPage:
    """Return the page of the container that is at the path; look it up again if it left its path meanwhile."""
    while True:
        page = _find_page(session, wanted, size, token, seconds)
        if _is_there(session, wanted, page):
            return page
        wanted = wanted.again(session.backend)
        check_time(session.clock)


def _is_there(session: Session, wanted: CheckedSearch, page: FoundPage) -> bool:
    """Whether the scope was at its path when each item was read; without items, whether it never left its path."""
    if page.items or not wanted.chain:
        return all(wanted.is_there(entity.record.chain) for entity in page.items)
    (known,) = session.backend.by_id([wanted.chain[-1].id])
    return known is not None and known.live and wanted.is_unchanged(session.backend, known.record.chain)


def _find_page(session: Session, wanted: CheckedSearch, size: int, token: str | None, seconds: float) -> FoundPage:
    question = [wanted.glob, sorted(wanted.properties.items()), wanted.recursive, wanted.text]
    digest = hashlib.sha256(json.dumps(question).encode(errors="surrogatepass")).hexdigest()[:16]
    listed, scope = TokenScope("find", wanted.kind, digest), ROOT_ID if wanted.scope is None else wanted.scope.id
    step = _Step(session, wanted, size, session.clock.monotonic() + seconds)
    if token is None:
        place = step.begin()
    else:
        of, after = read_token(listed, session.epoch(), token)
        if of != scope:
            raise InvalidArgument("the token is of a search below another container; begin without one")
        try:
            place = step.resume(*after)
        except (TypeError, ValueError, KeyError, IndexError):
            raise InvalidArgument(f"{shown(token)} is not a token of a search; begin without one") from None
    rest = None if place is None else write_token(listed, session.epoch(), scope, [step.looked, *place])
    return FoundPage(tuple(step.found), rest, step.looked, step.at)


class _Step:
    """One call: its matches so far, and where it stops. A *place* is the content of its token, without the count."""

    def __init__(self, session: Session, wanted: CheckedSearch, size: int, ends: float) -> None:
        self._session, self._backend, self._origin = session, session.backend, session.backend.origin
        self._wanted, self._size, self._ends = wanted, size, ends
        self._looking = Looking(session.backend, session.backend.find, wanted)
        self._text = text_of(session, wanted.text, named(session, wanted.scope))
        self._has_moved = False
        self._shown: Any = None
        """The progress in the index: None (not used), complete, or [name, id] of the last entity shown."""
        self.found: list[Entity] = []
        self.looked = 0
        self.at: str | None = None

    def begin(self) -> list[Any] | None:
        """Search from the beginning; return the place to continue at, or None at the end."""
        looking, glob = self._looking, self._wanted.glob
        # only a scan of names is fast: a text search reads documents, and a user may not see most of the names
        is_quick = looking.prefix or (glob != "*" and self._session.access is None)
        return self._names(("", -1)) if is_quick and not looking.walks() else self._tree(self._top())

    def resume(self, looked: int, way: str, shown: Any, *rest: Any) -> list[Any] | None:
        """Continue at a place.

        Raises TypeError, ValueError, KeyError or IndexError for a place that no token can hold.
        """
        self.looked = int(looked)
        if way == "names":
            return self._names((str(shown[0]), int(shown[1])))
        self._shown = shown if shown in (None, _ALL) else [str(shown[0]), int(shown[1])]
        return self._tree(self._frames(rest[0]))

    def _is_over(self) -> bool:
        return len(self.found) >= self._size or (self._has_moved and self._session.clock.monotonic() >= self._ends)

    def _names(self, after: tuple[str, int]) -> list[Any] | None:
        place, search = after, self._looking.names(after)
        while not self._is_over():
            batch = self._backend.find(replace(search, most=self._size - len(self.found)))
            for record in batch.records:
                place = (record.chain[-1].name, record.chain[-1].id)
                if not record.folded:  # entities below a folding catalog are found in the tree
                    self._look(record)
            self._has_moved = True
            if batch.last is None:
                self._shown = _ALL
                scope = self._wanted.scope
                return self._tree(self._top()) if scope is None or scope.kind == "metalake" else None
            search = following(search, batch)
        if place != after or self._session.access is None:
            return ["names", list(place if self._session.access is not None else search.after)]
        self._shown = [*place]
        return self._tree(self._top())

    def _top(self) -> list[_Frame]:
        scope = self._wanted.scope
        if scope is None:
            return [_Frame((), self._kinds(None)[0])]
        (known,) = self._backend.by_id([scope.id])
        kinds = self._kinds(scope.kind)
        return [_Frame(known.record.chain, kinds[0])] if known is not None and known.live and kinds else []

    def _frames(self, told: list[Any]) -> list[_Frame]:
        """Return the frames of a token. A container that is gone, or no longer below the scope, is finished."""
        places = [(int(i), str(kind), (str(key), int(last))) for i, kind, key, last in told]
        known = iter(self._backend.by_id([i for i, *_ in places if i != ROOT_ID]))
        frames, scope = list[_Frame](), self._wanted.scope
        for i, kind, after in places:
            one = None if i == ROOT_ID else next(known)
            if i != ROOT_ID and (one is None or not one.live):
                continue
            nodes = () if one is None else one.record.chain
            self._kinds(nodes[-1].kind if nodes else None).index(kind)  # raises for a place that no token can hold
            if scope is None or any(node.id == scope.id for node in nodes):
                frames.append(_Frame(nodes, kind, after))
        return frames

    def _tree(self, frames: list[_Frame]) -> list[Any] | None:
        while frames and not self._is_over():
            frame = frames[-1]
            if not frame.rows and not frame.is_last:
                self._read(frame)
            if not frame.rows:
                self._has_moved = True
                following = self._following(frame)
                frames[-1:] = [] if following is None else [following]
                continue
            child = frame.rows.popleft()
            frame.after = (child.key, child.node.id)
            record = child.record(frame.nodes)
            if self._is_new(record):
                self._look(record)
            self._has_moved = True
            if self._leads_on(child.node):
                frames.append(_Frame(record.chain, self._kinds(child.node.kind)[0]))
        return ["tree", self._shown, [[f.id, f.kind, *f.after] for f in frames]] if frames else None

    def _is_new(self, record: Record) -> bool:
        if self._shown is None or record.folded:
            return True
        return self._shown != _ALL and [record.chain[-1].name, record.chain[-1].id] > list(self._shown)

    def _read(self, frame: _Frame) -> None:
        """Read the next children; if the container is gone, the frame is finished without rows."""
        kind = KINDS[frame.kind]
        while True:
            guards = [(guard.id, guard.scope_version) for guard in guards_of(frame.nodes)]
            page = self._backend.children(frame.id, kind.name, kind.family, LIVE, frame.after, _ROWS, guards)
            if page.held or not frame.nodes:
                break
            (known,) = self._backend.by_id([frame.id])
            if known is None or not known.live:
                break
            frame.nodes = known.record.chain  # the container was renamed or moved meanwhile
        frame.rows, frame.is_last = deque(page.rows), not page.held or len(page.rows) < _ROWS

    def _kinds(self, above: str | None) -> list[str]:
        """Return the kinds to read in a container; container kinds come last."""
        here = [one for one in KINDS.values() if (above in one.parents if above else not one.parents)]
        chosen = [one for one in here if one.container or self._wanted.kind in ("", one.name)]
        return [one.name for one in sorted(chosen, key=lambda one: (one.container, one.name))]

    def _following(self, frame: _Frame) -> _Frame | None:
        kinds = self._kinds(frame.nodes[-1].kind if frame.nodes else None)
        rest = kinds[kinds.index(frame.kind) + 1 :]
        return _Frame(frame.nodes, rest[0]) if rest else None

    def _leads_on(self, node: Node) -> bool:
        if not self._wanted.recursive or not kind_named(node.kind).container or not self._kinds(node.kind):
            return False
        return self._shown != _ALL or node.fold or node.kind == "metalake"

    def _look(self, record: Record) -> None:
        entity = kind_named(record.chain[-1].kind).entity(record, self._origin)
        self.looked, self.at = self.looked + 1, entity.path
        if self._fits(entity):
            self.found.append(entity)

    def _fits(self, entity: Entity) -> bool:
        wanted, name = self._wanted, entity.name
        if wanted.kind not in ("", entity.kind):
            return False
        if not matches(wanted.glob, name) and not (entity.record.folded and matches(fold(wanted.glob), fold(name))):
            return False
        try:
            return wanted.properties.items() <= entity.properties.items() and (
                self._text is None or self._text.is_in(entity)
            )
        except UnreadableRow:  # the entity may match, so show it: reading it raises the error
            return True
