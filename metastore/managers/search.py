"""What a search looks for, below which container, and whether that container is still at its path."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from metastore.arguments import boolean, shown
from metastore.errors import EntityNotFound, InvalidArgument, MetastoreError
from metastore.kinds.entity import Entity
from metastore.kinds.families import families_of
from metastore.kinds.registry import KINDS
from metastore.managers.target import Target, in_hand, not_live, unless_back
from metastore.managers.text import clean
from metastore.names import MAX_NAME, Path, clean_text, parse_path
from metastore.operation.dropping import pending_at
from metastore.operation.guards import guards_of
from metastore.port.backend import Backend
from metastore.port.records import Lookup, Node

__all__ = ["CheckedSearch", "live", "wanted"]


@dataclass(frozen=True)
class CheckedSearch:
    """A checked search."""

    scope: Node | None
    """The entity below which the search looks; None: anywhere."""
    kind: str
    """Empty: any kind."""
    glob: str
    properties: Mapping[str, str]
    recursive: bool
    text: str | None = None
    """The text to look for, case-folded; None: any entity matches."""
    chain: tuple[Node, ...] = ()
    """The nodes of the path that names the scope; empty: no path names it."""
    versions: tuple[int, ...] = ()
    """The versions of these entities, read after the nodes; empty: not read, as in the first search."""

    def is_there(self, chain: Sequence[Node]) -> bool:
        """Whether the scope is still at its path, as the nodes of an entity below it, or its own, show."""
        return all((a.id, a.name) == (b.id, b.name) for a, b in zip(self.chain, chain, strict=False))

    def is_unchanged(self, backend: Backend, chain: Sequence[Node]) -> bool:
        """Whether the scope was at its path from the look-up until ``chain``, its nodes, was read."""
        if guards_of(self.chain) == guards_of(chain):
            return True
        # a freeze raises a scope version too, but no version: it must not make a search begin again for ever
        return self.is_there(chain) and self.versions == _versions(backend, chain)

    def now(self, backend: Backend) -> tuple[Node, ...]:
        """Return the nodes to which the scope's path leads now. Raises EntityNotFound."""
        return _scope(backend, tuple(node.name for node in self.chain))

    def again(self, backend: Backend) -> CheckedSearch:
        """Return the search with what is at the scope's path now. Raises EntityNotFound."""
        chain = self.now(backend)
        return replace(self, scope=chain[-1], chain=chain, versions=_versions(backend, chain))


def wanted(
    backend: Backend,
    under: Target | None,
    kind: str | None,
    name: str | None,
    properties: Mapping[str, str] | None,
    recursive: bool,
    text: str | None,
) -> CheckedSearch:
    """Check a search. Raises InvalidArgument, and EntityNotFound for a missing scope."""
    if kind is not None and (not isinstance(kind, str) or kind not in KINDS):
        known = ", ".join(sorted(KINDS))
        raise InvalidArgument(f"there is no kind {shown(kind)} to find; known are {known}")
    boolean(recursive, "recursive")
    glob = "*" if name is None else unicodedata.normalize("NFC", clean_text(name, "the name to find"))
    if "\x00" in glob:
        raise InvalidArgument("the name to find must not contain NUL")
    if len(glob.replace("*", "")) > MAX_NAME:  # no entity has a longer name
        raise InvalidArgument(f"the name to find has more than {MAX_NAME} characters besides *; shorten it")
    glob, pairs, looked_for = re.sub(r"\*+", "*", glob), _pairs(properties), clean(text)
    chain = () if under is None else _scope(backend, under)
    scope = chain[-1] if chain else None
    by_path = () if isinstance(under, Entity) else chain
    return CheckedSearch(scope, kind or "", glob, pairs, recursive, looked_for, by_path)


def _pairs(properties: object) -> dict[str, str]:
    if properties is None:
        return {}
    if not isinstance(properties, Mapping):
        raise InvalidArgument(f"the properties to find are a mapping of strings, not {type(properties).__name__}")
    return {clean_text(k, "a property's key"): clean_text(v, f"the property {k!r}") for k, v in properties.items()}


def _scope(backend: Backend, under: Target) -> tuple[Node, ...]:
    """Return the nodes of the scope's path, itself last."""
    if isinstance(under, Entity):
        entity = under
        return in_hand(backend, entity, lambda: live(backend, entity.id, entity.path))
    names = parse_path(under)
    missed: list[tuple[Lookup, tuple[Node, ...]]] = []
    for kind in KINDS.values():
        if kind.container and (families := families_of(kind, len(names))) is not None:
            where = Lookup(families, names)
            (resolved,) = backend.resolve([where])
            if resolved.record is not None:
                return resolved.record.chain
            missed.append((where, resolved.nodes))
    return unless_back(lambda: _no_container(backend, under, missed), lambda: _scope(backend, under))


def _no_container(backend: Backend, under: Path, missed: Sequence[tuple[Lookup, tuple[Node, ...]]]) -> MetastoreError:
    for where, nodes in missed:
        if (pending := pending_at(backend, where, nodes)) is not None:
            return pending
    message = f"there is no container {under}; find looks below a metalake, catalog or schema"
    return EntityNotFound(str(under), message)


def _versions(backend: Backend, chain: Sequence[Node]) -> tuple[int, ...]:
    """Return the versions of entities. A rename, a move, a drop and a restore raise them."""
    known = backend.by_id([node.id for node in chain])
    return tuple([0 if one is None else one.record.version for one in known])


def live(backend: Backend, entity_id: int, path: str) -> tuple[Node, ...]:
    """Return the nodes of a live entity's path, itself last. Raises EntityNotFound."""
    known = backend.by_id([entity_id])[0]
    if known is None or not known.live:
        message = f"{path} (id {entity_id}) is not there any more; there is nothing to find below it"
        return unless_back(partial(not_live, backend, known, path, message), lambda: live(backend, entity_id, path))
    return known.record.chain
