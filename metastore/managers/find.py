"""Find entities by name, kind and properties, wherever they are: page by page, each page true at one instant.

Where the name begins with plain text, or nothing says where to look, the index of names is scanned; otherwise the tree
is walked from the scope down. Both hold one page at a time, and the ids of the containers still to visit. That index
has names as they were given, so a catalog that folds case is always walked.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from metastore.arguments import shown
from metastore.errors import EntityNotFound, InvalidArgument, MetastoreError
from metastore.kinds.entity import Entity
from metastore.kinds.families import families_of
from metastore.kinds.registry import KINDS, kind_named
from metastore.managers.target import Target, not_live, unless_back
from metastore.managers.text import clean, text_of
from metastore.names import MAX_NAME, Path, clean_text, fold, parse_path
from metastore.operation.dropping import pending_at
from metastore.operation.request import committed
from metastore.operation.session import Session
from metastore.operation.timed import timing
from metastore.port.backend import Backend, Matches, Search
from metastore.port.conditions import ROOT_ID
from metastore.port.records import Lookup, Node, Record

__all__ = ["CheckedSearch", "find", "wanted"]

Ask = Callable[[Search], Matches]

_PAGE: Final = 500
_BEYOND: Final = "\U0010ffff" * 256
"""After every name."""


@dataclass(frozen=True)
class CheckedSearch:
    """A checked search."""

    scope: Node | None
    """Below which entity; None: anywhere."""
    kind: str
    """Empty: of any kind."""
    glob: str
    properties: Mapping[str, str]
    recursive: bool
    text: str | None = None
    """Without case; None: all fits."""


def wanted(
    backend: Backend,
    under: Target | None,
    kind: str | None,
    name: str | None,
    properties: Mapping[str, str] | None,
    recursive: bool,
    text: str | None,
) -> CheckedSearch:
    """Check a search. Raises InvalidArgument, and EntityNotFound for a scope that is not there."""
    if kind is not None and (not isinstance(kind, str) or kind not in KINDS):
        known = ", ".join(sorted(KINDS))
        raise InvalidArgument(f"there is no kind {shown(kind)} to find; known are {known}")
    if not isinstance(recursive, bool):
        raise InvalidArgument(f"recursive is True or False, not {shown(recursive)}")
    glob = "*" if name is None else unicodedata.normalize("NFC", clean_text(name, "the name to find"))
    if "\x00" in glob:
        raise InvalidArgument("the name to find has no NUL: no name has one")
    if len(glob.replace("*", "")) > MAX_NAME:  # SQLite takes no pattern of any length
        raise InvalidArgument(f"the name to find has more than {MAX_NAME} characters beside *: no name has so many")
    glob, pairs, looked_for = re.sub(r"\*+", "*", glob), _pairs(properties), clean(text)
    return CheckedSearch(_scope(backend, under), kind or "", glob, pairs, recursive, looked_for)


def _pairs(properties: object) -> dict[str, str]:
    if properties is None:
        return {}
    if not isinstance(properties, Mapping):
        raise InvalidArgument(f"the properties to find are a mapping of strings, not {type(properties).__name__}")
    return {clean_text(k, "a property's key"): clean_text(v, f"the property {k!r}") for k, v in properties.items()}


def _scope(backend: Backend, under: Target | None) -> Node | None:
    if under is None:
        return None
    if isinstance(under, Entity):
        committed(backend, under)
        return _live(backend, under.id, under.path)
    names = parse_path(under)
    missed: list[tuple[Lookup, tuple[Node, ...]]] = []
    for kind in KINDS.values():
        if kind.container and (families := families_of(kind, len(names))) is not None:
            where = Lookup(families, names)
            (resolved,) = backend.resolve([where])
            if resolved.record is not None:
                return resolved.record.chain[-1]
            missed.append((where, resolved.nodes))
    return unless_back(lambda: _no_container(backend, under, missed), lambda: _scope(backend, under))


def _no_container(backend: Backend, under: Path, missed: Sequence[tuple[Lookup, tuple[Node, ...]]]) -> MetastoreError:
    for where, nodes in missed:
        if (pending := pending_at(backend, where, nodes)) is not None:
            return pending
    message = f"there is no container {under}; find looks below a metalake, catalog or schema"
    return EntityNotFound(str(under), message)


def find(session: Session, looked_for: CheckedSearch, scope_path: str) -> Iterator[Entity]:
    """Yield the entities that fit; by name where the name begins with plain text, else container by container.

    ``scope_path`` is the scope's path, for messages. Raises EntityNotFound if the scope is dropped meanwhile.
    """
    backend = session.backend
    ask = timing(session, "find", backend.find)
    text = text_of(session, looked_for.text, _tags(session, looked_for.scope))
    for entity in _found(session, ask, looked_for):
        if looked_for.properties.items() <= entity.properties.items() and (text is None or text.is_in(entity)):
            yield entity
    if looked_for.scope is not None:
        _live(backend, looked_for.scope.id, scope_path)


def _found(session: Session, ask: Ask, looked_for: CheckedSearch) -> Iterator[Entity]:
    for record in _records(ask, session.backend.find, looked_for):
        yield kind_named(record.chain[-1].kind).entity(record, session.backend.origin)


def _tags(session: Session, scope: Node | None) -> Iterator[Entity]:
    """Yield all tags: of the scope's metalake, or of all."""
    ask = session.backend.find
    known = None if scope is None else session.backend.by_id([scope.id])[0]
    lakes = _children(ask, ROOT_ID, "metalake") if known is None else [known.record.chain[0]]
    for lake in lakes:
        yield from _found(session, ask, CheckedSearch(lake, "tag", "*", {}, recursive=False))


def _records(ask: Ask, uncounted: Ask, looked_for: CheckedSearch) -> Iterator[Record]:
    scope, prefix = looked_for.scope, re.split(r"[*?]", looked_for.glob, maxsplit=1)[0]
    if prefix and scope is not None and scope.fold:
        yield from _by_parent(ask, looked_for, scope.id)
    elif prefix:
        yield from (record for record in _by_name(ask, looked_for, prefix) if not _folded(record))
        if looked_for.recursive and (scope is None or scope.kind == "metalake"):
            for catalog_id in _folding(uncounted, scope):
                yield from _by_parent(ask, looked_for, catalog_id)
    elif looked_for.recursive and scope is None:
        yield from _by_name(ask, looked_for, prefix)
    else:
        yield from _by_parent(ask, looked_for, _id(scope))


def _folded(record: Record) -> bool:
    """Return whether the entity's own name is compared without case."""
    return len(record.chain) > 1 and record.chain[-2].fold


def _folding(ask: Ask, metalake: Node | None) -> list[int]:
    """Return the ids of the catalogs that fold case: of one metalake, or of all."""
    metalakes = [metalake.id] if metalake else [node.id for node in _children(ask, ROOT_ID, "metalake")]
    return [node.id for above in metalakes for node in _children(ask, above, "catalog") if node.fold]


def _children(ask: Ask, parent: int, kind: str) -> Iterator[Node]:
    """Yield the children of a kind that is its own family: one part of the index, not users, roles and tags too."""
    search = Search(ROOT_ID, kind, "*", "*", parent, False, (kind, ""), "", _PAGE)
    while True:
        batch = ask(search)
        yield from (record.chain[-1] for record in batch.records)
        if batch.last is None or batch.last[0] != kind:
            return
        search = replace(search, after=batch.last)


def _id(scope: Node | None) -> int:
    return ROOT_ID if scope is None else scope.id


def _by_name(ask: Ask, looked_for: CheckedSearch, prefix: str) -> Iterator[Record]:
    parent = -1 if looked_for.recursive else _id(looked_for.scope)
    before = prefix if prefix == looked_for.glob else prefix + _BEYOND
    # one name: up to the least text that comes after it
    before = before + "\x01" if before == prefix else before
    yield from _pages(ask, _search(looked_for, parent, True, (prefix, -1), before), [])


def _by_parent(ask: Ask, looked_for: CheckedSearch, top: int) -> Iterator[Record]:
    waiting = [top]
    while waiting:
        below: list[int] = []
        yield from _pages(ask, _search(looked_for, waiting.pop(), False, ("", ""), ""), below)
        if looked_for.recursive:
            waiting += below


def _search(looked_for: CheckedSearch, parent: int, by_name: bool, after: tuple[Any, ...], before: str) -> Search:
    glob, scope = looked_for.glob, _id(looked_for.scope)
    return Search(scope, looked_for.kind, glob, fold(glob), parent, by_name, after, before, _PAGE)


def _pages(ask: Ask, search: Search, containers: list[int]) -> Iterator[Record]:
    """Yield the records that fit; add the containers that the scan met to ``containers``."""
    while True:
        batch = ask(search)
        containers += [entity_id for entity_id, kind in batch.scanned if kind_named(kind).container]
        yield from batch.records
        if batch.last is None:
            return
        search = replace(search, after=batch.last)


def _live(backend: Backend, entity_id: int, path: str) -> Node:
    known = backend.by_id([entity_id])[0]
    if known is None or not known.live:
        message = f"{path} (id {entity_id}) is not there any more; there is nothing to find below it"
        return unless_back(partial(not_live, backend, known, path, message), lambda: _live(backend, entity_id, path))
    return known.record.chain[-1]
