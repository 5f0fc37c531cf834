"""The attempt that creates an entity, and its choices if the name is taken."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from metastore.arguments import shown
from metastore.errors import EntityAlreadyExists, InvalidArgument
from metastore.kinds.change import Doc
from metastore.kinds.entity import Entity
from metastore.kinds.kind import Kind, dump
from metastore.kinds.secret import kept_in
from metastore.managers.attempts.alter import rewrite
from metastore.managers.target import absent_parent, check_standing, find_parent, root_or_last
from metastore.names import MAX_PATH, Path, clean_name, format_path, parse_path
from metastore.operation.guards import check_in_use, guards_of, key_under, lookup
from metastore.operation.merge import equal
from metastore.operation.replace import Replace, below
from metastore.operation.request import Merge, Proposal, Results, View, the_result
from metastore.port.records import Lookup, Node, Record
from metastore.port.writes import Event, Insert
from metastore.secrets.sealer import Sealed, bound

IfExists = Literal["error", "return", "replace"]


def check_if_exists(value: object) -> None:
    """Raise InvalidArgument unless ``value`` is one of the three words of ``IfExists``."""
    if type(value) is not str or value not in ("error", "return", "replace"):
        raise InvalidArgument(f'if_exists is "error", "return" or "replace", not {shown(value)}')


@dataclass(frozen=True)
class Wish:
    """An entity to create, without its place."""

    kind: Kind
    comment: object
    properties: object
    fields: Mapping[str, Any]

    @property
    def encrypts(self) -> bool:
        """Whether a property is encrypted. Then the announced intent depends on the catalog's settings."""
        return bool(self.secrets)

    @property
    def secrets(self) -> Mapping[str, Sealed]:
        """The properties that are encrypted."""
        if not isinstance(self.properties, Mapping):
            return {}
        return {key: value for key, value in self.properties.items() if isinstance(value, Sealed)}

    def new(self, doc: Doc) -> tuple[int | None, Doc]:
        """Return the id and the document of the new entity. Without secrets, the database draws the id."""
        secrets = self.secrets if self.properties else {}
        if not secrets:
            return None, doc
        new = next(iter(secrets.values())).new_id()
        return new, with_properties(doc, bound(secrets, new, {}))

    def document(self) -> Doc:
        """Return the document of the new entity."""
        return self.kind.document(self.comment, self.properties, self.fields)

    def folds(self, parent: Node) -> bool:
        """Whether names below the entity are folded: a catalog sets it, other entities inherit it."""
        return bool(self.fields.get("fold_case")) if self.kind.name == "catalog" else parent.fold

    def replacing(self, old: Doc) -> Doc:
        """Return the document that replaces ``old``."""
        return self.kind.replaced(old, self.comment, self.properties, self.fields)


def create(
    view: View, wish: Wish, doc: Doc, path: Path, parent: Entity | None, if_exists: IfExists, actor: str | None
) -> Proposal[Entity] | Entity:
    """Propose the new entity, or return the one that has its name already."""
    parents, name, existing = _place(view, wish.kind, path, parent, if_exists)
    names = (*[n.name for n in parents], name)
    if existing is not None:
        return of_existing(wish, doc, existing, names, if_exists, actor)
    check_in_use(parents)
    above = root_or_last(parents)
    new, doc = wish.new(doc)
    write = new_entity(wish.kind, above, names, dump(doc, names), wish.folds(above), new)

    def finish(results: Results) -> Entity:
        result = the_result(results)
        node = Node(result.id, wish.kind.name, name, 1, True, write.fold)
        record = Record((*parents, node), 1, write.doc, actor, result.time, actor, result.time)
        return wish.kind.entity(record)

    return Proposal(guards_of(parents), (write,), finish)


def _place(
    view: View, kind: Kind, path: Path, parent: Entity | None, if_exists: IfExists
) -> tuple[tuple[Node, ...], str, Record | None]:
    """Return the parent's nodes, the new name, and the child that has that name already."""
    if parent is None:
        names = parse_path(path)
        where = lookup(kind, names)
        above = Lookup(where.families[:-1], names[:-1])
        known = view.follow(above) if if_exists == "error" else None
        if known is not None:
            return known, names[-1], None
        (resolved,) = view.backend.resolve([where])
        if len(resolved.nodes) < len(names) - 1:
            raise absent_parent(view.backend, where, resolved.nodes)
        if resolved.record is None and len(resolved.nodes) == len(names):
            raise EntityAlreadyExists(format_path(names))  # an entity that the user does not see has the name
        parents = resolved.nodes[: len(names) - 1]
        view.led(above, parents)
        return parents, names[-1], resolved.record
    name = clean_name(path[0] if isinstance(path, tuple) and len(path) == 1 else path)
    parents = find_parent(view, kind, parent)
    if view.guessed:
        return parents, name, None
    (resolved,) = view.backend.resolve([Lookup((kind.family,), (name,), parents[-1])])
    record = resolved.record
    if record is None:
        if resolved.nodes:
            raise EntityAlreadyExists(format_path([*[node.name for node in parents], name]))
        return parents, name, None
    check_standing(view, parents)  # the call returns this entity or its error, so check that the entity still exists
    return parents, name, record._replace(chain=(*parents, *record.chain))


def of_existing(
    wish: Wish, doc: Doc, record: Record, names: tuple[str, ...], if_exists: IfExists, actor: str | None
) -> Proposal[Entity] | Entity:
    """Apply ``if_exists`` to the entity that has the name: propose to replace it, or return it.

    Raises EntityAlreadyExists.
    """
    path = format_path(names)
    if if_exists == "error":
        raise EntityAlreadyExists(path)
    if record.chain[-1].kind != wish.kind.name:
        raise EntityAlreadyExists(path, f"{path} already exists and is a {record.chain[-1].kind}; choose another name")
    if if_exists == "return":
        return wish.kind.entity(record)
    before = json.loads(record.doc)["properties"] if wish.encrypts else {}
    properties = bound(wish.secrets, record.chain[-1].id, before)
    proposal = _replaced(wish, record, properties, actor)
    if isinstance(proposal, Proposal) and not proposal.exclusive:
        new = Replace(wish.kind.name, with_properties(doc, properties))
        proposal = replace(proposal, merge=Merge(wish.kind.name, names, None, (new,)))
    return proposal


def _replaced(wish: Wish, record: Record, secrets: Mapping[str, str], actor: str | None) -> Proposal[Entity] | Entity:
    old, path = dict(wish.kind.entity(record).doc), tuple([n.name for n in record.chain])
    with below(path):
        doc = with_properties(wish.replacing(old), secrets)
    doc["properties"] = kept_in(doc["properties"], old["properties"])
    text = dump(doc, path)
    unless_equal = None if equal(record.doc, text, doc, same_order=False) else text
    return rewrite(wish.kind, record, path, unless_equal, "[]", actor)


def with_properties(doc: Doc, more: Mapping[str, str], without: Container[str] = ()) -> Doc:
    """Return the document with the properties ``more`` added or replaced, and those in ``without`` left out."""
    if not more and not without:
        return doc
    return {**doc, "properties": {key: one for key, one in {**doc["properties"], **more}.items() if key not in without}}


def new_entity(
    kind: Kind, parent: Node, names: tuple[str, ...], text: str, folds: bool, new: int | None = None
) -> Insert:
    """Return the write that makes a new entity at ``names`` below ``parent``; ``new`` is its id, if it has one."""
    name = names[-1]
    if len(names) > MAX_PATH:
        raise InvalidArgument(f"the path of {name!r} would have {len(names)} names; at most {MAX_PATH} are allowed")
    return Insert(
        parent.id,
        kind.name,
        kind.family,
        name,
        key_under(parent, name),
        folds,
        text,
        Event(kind.name, "create", None, format_path(names)),
        new,
    )
