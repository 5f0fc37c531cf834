"""Import a file without ids: commit its lines like any other client, while other programs use the store.

Lines are committed in chunks. A chunk is all or nothing, and its commit requires that all ancestors are unchanged. An
entity that exists with the same content is left alone, so an import that was stopped can be run again. Entities are
disabled last, because nothing can be written below a disabled entity.

It keeps in memory an object for each entity that can have children, and two chunks.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, BinaryIO

from metastore.errors import EntityNotFound, InvalidArgument
from metastore.kinds.entity import Entity
from metastore.kinds.partition import PARTITION
from metastore.kinds.partition_statistic import PARTITION_STATISTIC, belongs
from metastore.kinds.registry import KINDS, kind_named
from metastore.managers.attempts import exclusive as moving
from metastore.managers.attempts.create import IfExists
from metastore.managers.target import missing, root_or_last
from metastore.names import format_path
from metastore.operation.guards import lookup
from metastore.operation.perform import perform
from metastore.operation.request import Call, Proposal, Request, View
from metastore.operation.session import Session
from metastore.port.backend import Reads
from metastore.port.records import Lookup, Node, OwnedRecord, Record
from metastore.transfer.chunks import Group, Key, chunks, key_of, parent_key
from metastore.transfer.lines import Header, RelationLine
from metastore.transfer.outcomes import Imported
from metastore.transfer.plan import ChunkWrites, Follow, Standing, plan
from metastore.transfer.reader import Checked, Progress, body
from metastore.transfer.relations import import_relations
from metastore.transfer.structure import check_below

__all__ = ["folds_below", "import_lines"]

Nodes = tuple[Node, ...]

_CATALOG = 2
"""The depth of a catalog."""
_CONTAINERS = {1: "metalake", 2: "catalog"}


def import_lines(
    session: Session,
    stream: BinaryIO,
    checked: Checked,
    into: tuple[str, ...] | None,
    if_exists: IfExists,
    progress: Progress,
    call: Call,
    follow: Follow | None = None,
) -> Imported:
    """Write the lines of a file that was checked.

    ``follow``: the file is not a copy, but follows another system. Raises EntityNotFound for a parent that is missing
    or dropped, EntityAlreadyExists for an entity that differs or was created meanwhile; InvalidArgument, NotInUse.
    """
    header, footer, top, families = checked
    parents = _parents(session, header, into)
    if top is not None and parents:
        check_below(top.kind, parents[-1].kind, format_path((*[n.name for n in parents], top.names[-1])))
    moved = [n.name for n in parents] != list((header.root or ("",))[:-1])
    importer = _Importer(session, parents, if_exists, call, follow, moved=moved)
    # one chunk is written while the next one is read
    with ThreadPoolExecutor(1, "metastore-import") as writer:
        before: Future[None] | None = None
        for chunk in chunks(one for one in body(stream, header, progress) if not isinstance(one[1], RelationLine)):
            if before is not None:
                before.result()
            before = writer.submit(copy_context().run, importer.write, chunk)
        if before is not None:
            before.result()
    if footer.relations:  # after all entities, because the other end of a relation may come later in the file
        lines = body(stream, header, _silent)
        written, left = import_relations(session, lines, parents, families, if_exists, call, follow and follow.only)
        importer.written, importer.left = importer.written + written, importer.left + left
    importer.disable()
    return Imported(footer.lines, importer.written, importer.left, footer.hash, footer.checksum, restored=False)


def folds_below(backend: Reads, header: Header, into: tuple[str, ...] | None) -> bool:
    """Whether names are folded where the file's first entity belongs; False also if that place does not exist."""
    names = (header.root or ("",))[:-1] if into is None else into
    if len(names) < _CATALOG:
        return False
    (found,) = backend.resolve([lookup(KINDS["catalog"], names[:_CATALOG])])
    return bool(found.nodes) and found.nodes[-1].fold


def _silent(_: float) -> None:
    """Report no progress: the second reading of the lines is short."""


def _parents(session: Session, header: Header, into: tuple[str, ...] | None) -> Nodes:
    """Return the nodes down to the parent of the file's first entity."""
    if into is not None and header.root is None:
        raise InvalidArgument("the file holds a whole database, and metalakes have no parent; leave out into")
    names = (header.root or ("",))[:-1] if into is None else into
    if not names:
        return ()
    (nodes,) = session.backend.resolve([lookup(KINDS[_CONTAINERS.get(len(names), "schema")], names)])
    if nodes.record is None:
        raise missing(names, nodes.nodes)
    return nodes.nodes


class _Importer:
    """One import: the places of the entities that can have children, and the entities to disable at the end."""

    def __init__(
        self, session: Session, top: Nodes, if_exists: IfExists, call: Call, follow: Follow | None, *, moved: bool
    ) -> None:
        self._session, self._if_exists, self._call, self._follow = session, if_exists, call, follow
        self._moved = moved
        """Whether the import moves the file's entities to another parent."""
        self._places: dict[Key, Nodes] = {((), ()): top}
        self._last: Nodes = ()
        """The entity of the last group, which may own the rows at the beginning of the next chunk."""
        self._last_is_new = False
        """Whether this import has created that entity."""
        self._trusting = True
        """Whether to assume that nothing in the next chunk exists, as was true for the last one."""
        self._disable: list[Node] = []
        self.written = self.left = 0

    def write(self, chunk: list[Group]) -> None:
        """Commit a chunk, unless all of it exists already."""
        reserved: list[int] = []
        planned: list[tuple[ChunkWrites, list[Standing]]] = []

        def attempt(view: View) -> Proposal[None] | None:
            standing = self._assume(chunk) if self._trusting and view.guess() else self._look(view, chunk)
            new = sum(there.own is None for there in standing)
            if new > len(reserved):
                reserved.extend(self._session.backend.reserve_ids(new - len(reserved)))
            made = plan(chunk, standing, iter(reserved), self._if_exists, self._follow, self._keeps_origin)
            planned[:] = [(made, standing)]
            if not made.writes:
                return None
            return Proposal(tuple(made.guards.values()), tuple(made.writes), lambda _: None)

        def what() -> str:
            return f"import the lines from {chunk[0].number} on"

        request = Request[None](verb="import", what=what, attempt=attempt, replay=lambda _: None, arguments=tuple)
        perform(self._session, request, self._call)
        self._note(chunk, *planned[0])

    def disable(self) -> None:
        """Disable the entities that are disabled in the file, children before their parents."""
        while self._disable:
            self._set_in_use(self._disable.pop(), in_use=False)

    def _keeps_origin(self, group: Group, there: Standing) -> bool:
        """Whether an entity gets the origin in the file. Entities that were created here, or are copies, must not.

        Otherwise an import from the other system would overwrite them, and drop them.
        """
        if self._follow is not None:
            return True
        return not self._moved and (there.own is None if group.fresh else self._last_is_new)

    def _assume(self, chunk: list[Group]) -> list[Standing]:
        """Assume that nothing in a chunk exists, and that its parents have not moved."""
        return [Standing.nothing(g, self._above(g), None if g.fresh else self._last) for g in chunk]

    def _above(self, group: Group) -> Nodes:
        return self._places[parent_key(group.line)]

    def _look(self, view: View, chunk: list[Group]) -> list[Standing]:
        """Read which parts of a chunk exist, and the present places of its parents."""
        backend = view.backend
        seen = [self._above(g) if g.fresh else self._last for g in chunk]
        wanted = list({nodes[-1].id: format_path([n.name for n in nodes]) for nodes in seen if nodes}.items())
        now: dict[int, Record] = {}
        for (row_id, path), known in zip(wanted, backend.by_id([i for i, _ in wanted]), strict=True):
            if known is None or not known.live:
                raise EntityNotFound(path, f"{path} was dropped while its content was imported; import again")
            now[row_id] = known.record
        above = [now[nodes[-1].id].chain if nodes else () for nodes in seen]
        fresh = [n for n, group in enumerate(chunk) if group.fresh]
        lookups = [Lookup((chunk[n].line.family,), (chunk[n].line.names[-1],), root_or_last(above[n])) for n in fresh]
        records: dict[int, Record | None] = {n: now[nodes[-1].id] for n, nodes in enumerate(seen) if n not in fresh}
        for n, one in zip(fresh, backend.resolve(lookups) if lookups else (), strict=True):
            records[n] = one.record and one.record._replace(chain=(*above[n], *one.record.chain))
        rows = _owned_rows(backend, chunk, records)
        stale = _stale(backend, [row for some in rows for row in some if row is not None])
        return [
            Standing(above[n] if group.fresh else above[n][:-1], record and record.chain, record, rows[n], stale)
            for n, group in enumerate(chunk)
            for record in [records[n]]
        ]

    def _note(self, chunk: list[Group], made: ChunkWrites, standing: list[Standing]) -> None:
        """Remember the places of the entities of a written chunk."""
        for group, there, chain in zip(chunk, standing, made.chains, strict=True):
            self._places[parent_key(group.line)] = there.parents
            if group.fresh and kind_named(group.line.kind).container:
                self._places[key_of(group.line)] = chain
            if self._follow is not None:
                self._follow.only.add(chain[-1].id)
        self._last = made.chains[-1]
        if chunk[-1].fresh:
            self._last_is_new = standing[-1].own is None
        self._trusting = all(there.own is None for g, there in zip(chunk, standing, strict=True) if g.fresh)
        self.written += len(made.writes)
        self.left += made.left
        self._disable += made.disable
        for node in made.enable:
            self._set_in_use(node, in_use=True)

    def _set_in_use(self, node: Node, *, in_use: bool) -> None:
        def attempt(view: View) -> Proposal[Entity] | Entity:
            (known,) = view.backend.by_id([node.id])
            if known is None or not known.live:
                raise EntityNotFound(node.name, f"{node.name} (id {node.id}) was dropped meanwhile; import again")
            kind = kind_named(node.kind)
            entity = kind.entity(known.record)
            if known.record.chain[-1].in_use == in_use:
                return entity
            return moving.set_in_use(View(view.backend, False), kind, entity, in_use, self._session.principal)

        verb = "enable" if in_use else "disable"
        request = Request[Any](
            verb=verb,
            what=lambda: f"{verb} {node.name}",
            attempt=attempt,
            replay=lambda _: None,
            arguments=tuple,
            exclusive=True,
        )
        perform(self._session, request, self._call)


def _owned_rows(
    backend: Reads, chunk: list[Group], records: Mapping[int, Record | None]
) -> list[list[OwnedRecord | None]]:
    """Return the existing owned row of each line, or None."""
    rows: list[list[OwnedRecord | None]] = [[None] * len(group.owned) for group in chunk]
    wanted: dict[str, list[tuple[int, int, int, str]]] = {}
    for n, group in enumerate(chunk):
        record = records[n]
        for m, (_, line, _) in enumerate(group.owned):
            if record is not None:
                wanted.setdefault(line.kind, []).append((n, m, record.chain[-1].id, line.name))
    for kind, places in wanted.items():
        owners, names = [owner for _, _, owner, _ in places], [name for *_, name in places]
        for (n, m, _, _), row in zip(places, backend.owned_by_name(owners, kind, names), strict=True):
            rows[n][m] = row
    return rows


def _stale(backend: Reads, rows: list[OwnedRecord]) -> set[int]:
    """Return the ids of statistics of dropped partitions, even if a partition of the same name exists again."""
    told = [row for row in rows if row.kind == PARTITION_STATISTIC.name]
    owners, names = [row.owner_id for row in told], [row.name for row in told]
    partitions = backend.owned_by_name(owners, PARTITION.name, names) if told else []
    return {row.id for row, one in zip(told, partitions, strict=True) if not belongs(row.id, one and one.id)}
