"""The managers of owned rows: partitions, statistics and others.

A write of a row takes the guards of its owner and of the owner's ancestors. It does not change the owner's version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, TypeVar, Unpack, cast

from metastore.arguments import items, positive_integer, positive_seconds
from metastore.errors import EntityAlreadyExists, EntityNotFound
from metastore.kinds.entity import Owned
from metastore.kinds.kind import Kind, OwnedKind, dump
from metastore.kinds.partition import PARTITION, Partition
from metastore.kinds.table.kind import TABLE
from metastore.managers.attempts.create import with_properties
from metastore.managers.drops.announce import Begin
from metastore.managers.drops.parts import check_partition, marked_by
from metastore.managers.drops.pending import PendingDrop, begin_drop
from metastore.managers.mutation import actor_of, mutate
from metastore.managers.options import CallOptions, call_of, shows_options
from metastore.managers.owned_rows import Row, bound_doc, checked_row, has_properties, kept_doc, read_doc, sealed_row
from metastore.managers.pages.listing import owner_pages
from metastore.managers.pages.page import Page, TokenScope
from metastore.managers.pages.sources import PageSource, clean_prefix, page_of
from metastore.managers.secrets.sealing import sealed_call
from metastore.managers.target import Target, check_standing, find
from metastore.names import clean_name, format_path
from metastore.operation.guards import check_in_use, guards_of
from metastore.operation.kept_result import entity_at
from metastore.operation.request import Proposal, Results, View, the_result
from metastore.operation.seals import NO_SEAL, Seal
from metastore.operation.session import ManagerSession
from metastore.operation.timed import timed, timing
from metastore.port.backend import Guards, Reads
from metastore.port.conditions import Absent, Expect, Read
from metastore.port.records import Node, OwnedRecord, RowPage
from metastore.port.unreadable import Unreadable, check_unreadable, kept, naming
from metastore.port.writes import Delete, Event, Put

O = TypeVar("O", bound=Owned)  # noqa: E741
T = TypeVar("T")


class OwnedManager(Generic[O]):
    """The manager of one kind of owned row, for owners of one kind."""

    def __init__(self, session: ManagerSession, kind: OwnedKind, owner: Kind) -> None:
        self._session = session
        self._kind = kind
        self._owner = owner

    def list(self, owner: Target, *, page_size: int = 1000, unreadable: Unreadable | None = None) -> Iterator[O]:
        """Yield the owner's rows, by name. Raises EntityNotFound for a missing owner.

        With ``unreadable``, damaged rows are left out, and ``unreadable`` gets an error for each. Without it, a
        damaged row raises UnreadableRow.
        """
        check_unreadable(unreadable)
        page_size = positive_integer(page_size, "a page size")
        ask, kind = timing(self._session, "list", self._session.backend.owned), self._kind.name

        def read(above: Node, last: OwnedRecord | None, guards: Any) -> tuple[RowPage[OwnedRecord], int]:
            return ask(above.id, kind, "" if last is None else last.name, page_size, guards), page_size

        for _, record in owner_pages(self._session.backend, self._owner, owner, read):
            if marked_by(record) is not None:
                continue
            row = kept(partial(self._kind.row, record), unreadable)
            if row is not None:
                yield cast(O, row)

    def names(self, owner: Target, *, page_size: int = 1000) -> Iterator[str]:
        """Yield the names of the owner's rows, ordered by code point."""
        return (row.name for row in self.list(owner, page_size=page_size))

    def page(self, owner: Target, *, size: int = 100, token: str | None = None, prefix: str | None = None) -> Page[O]:
        """Return one page of the owner's rows, by name; ``token`` is the ``next_token`` of the page before.

        ``prefix`` has no wildcards. Raises InvalidArgument for a token that is damaged or of another listing.
        """
        return self._page(owner, size, token, prefix, lambda record: cast(O, self._kind.row(record)))

    def names_page(
        self, owner: Target, *, size: int = 100, token: str | None = None, prefix: str | None = None
    ) -> Page[str]:
        """Return one page of the names of the owner's rows. See :meth:`page`."""
        return self._page(owner, size, token, prefix, lambda record: record.name)

    def _page(
        self, owner: Target, size: int, token: str | None, prefix: str | None, item: Callable[[OwnedRecord], T]
    ) -> Page[T]:
        backend, kind = self._session.backend, self._kind.name
        source = PageSource[OwnedRecord, T](
            listed=TokenScope("owned", kind, clean_prefix(prefix)),
            parent=lambda view: find(view, self._owner, owner).chain,
            read=lambda above, after, limit, guards: _shown(backend, above.id, kind, after[0], limit, guards),
            key=lambda record: [record.name],
            item=lambda _, record: item(record),
            folds=False,
        )
        return page_of(self._session, source, size, token)

    def load(self, owner: Target, name: str) -> O:
        """Return one row. Raises EntityNotFound."""
        return timed(self._session, "load", self._load, owner, name)

    def _load(self, owner: Target, name: str) -> O:
        backend, name = self._session.backend, clean_name(name)
        while True:
            nodes = find(View(backend, False), self._owner, owner).chain
            (record,) = backend.owned_by_name([nodes[-1].id], self._kind.name, [name])
            if still(backend, nodes):
                break
        if record is None:
            path = format_path((*[n.name for n in nodes], name))
            what = self._kind.name.replace("_", " ")
            raise EntityNotFound(path, f"{path}: there is no such {what}; see the manager's names()")
        check_partition(record, format_path((*[n.name for n in nodes], name)))
        return cast(O, self._kind.row(record))

    def exists(self, owner: Target, name: str) -> bool:
        """Whether the owner has a row of this name."""
        try:
            self.load(owner, name)
        except EntityNotFound:
            return False
        return True

    def _document(self, name: str, comment: object, properties: object, fields: Mapping[str, Any]) -> Row:
        name = clean_name(name)
        return Row(name, dump(self._kind.document(comment, properties, fields), (name,)))

    def _insert(self, owner: Target, row: Row, options: CallOptions) -> O:
        if not has_properties(row.doc):
            return self._insert_sealed(owner, row, {}, options, NO_SEAL)

        def insert(seal: Seal) -> O:
            return self._insert_sealed(owner, *sealed_row(row, seal), options, seal)

        return sealed_call(self._session, self._owner, owner, options, insert)

    def _insert_sealed(
        self, owner: Target, row: Row, secrets: Mapping[str, str], options: CallOptions, seal: Seal
    ) -> O:
        call = call_of(options)
        actor = actor_of(self._session, call)

        def attempt(view: View) -> Proposal[O] | O:
            nodes, path = self.place(view, owner, row.name)
            if not view.guessed:
                self._check_absent(view, nodes, row.name, path)
            doc = bound_doc(row.doc, secrets, nodes[-1].id)
            write = Put(nodes[-1].id, self._kind.name, row.name, 0, doc, self.event("create", None, path))

            def finish(results: Results) -> O:
                result = the_result(results)
                audit = (actor, result.time, actor, result.time)
                record = OwnedRecord(result.id, nodes[-1].id, self._kind.name, row.name, 1, doc, *audit)
                return cast(O, self._kind.row(record))

            return Proposal(guards_of(nodes), (write,), finish)

        return mutate(
            self._session,
            self._kind,
            call,
            "create",
            owner,
            seal.guarding(attempt),
            lambda steps: cast(O, entity_at(steps[0])),
            lambda: [with_properties(json.loads(row.doc), secrets) if secrets else row.doc],
            name=row.name,
        )

    @shows_options(CallOptions)
    def put_many(
        self, owner: Target, rows: Iterable[Row], drop: Iterable[str] = (), **options: Unpack[CallOptions]
    ) -> int:
        """Create or replace ``rows`` and drop others, in one commit; return how many changed.

        A row that is equal already is not written; the commit checks that it is still equal. If several rows have one
        name, the last one counts.
        """
        given = {row.name: row for row in map(checked_row, items(rows, "rows"))}
        wanted = {name: row.doc for name, row in given.items()}
        unwanted = [name for name in dict.fromkeys(map(clean_name, items(drop, "drop"))) if name not in wanted]
        if not any(map(has_properties, wanted.values())):
            return self._put_many(owner, wanted, {}, unwanted, options, NO_SEAL)

        def put(seal: Seal) -> int:
            rows = [sealed_row(row, seal) for row in given.values()]
            docs = {row.name: row.doc for row, _ in rows}
            return self._put_many(owner, docs, {row.name: of for row, of in rows}, unwanted, options, seal)

        return sealed_call(self._session, self._owner, owner, options, put)

    def _put_many(
        self,
        owner: Target,
        wanted: dict[str, str],
        secrets: Mapping[str, Mapping[str, str]],
        unwanted: Sequence[str],
        options: CallOptions,
        seal: Seal,
    ) -> int:
        names = sorted([*wanted, *unwanted])

        def attempt(view: View) -> Proposal[int] | int:
            nodes, _ = self.place(View(view.backend, False), owner, "")
            owner_id, path = nodes[-1].id, [n.name for n in nodes]
            known = view.backend.owned_by_name([owner_id] * len(names), self._kind.name, names)
            writes = [
                w
                for name, record in zip(names, known, strict=True)
                if (
                    w := self._difference(
                        owner_id, name, record, wanted.get(name), secrets.get(name, {}), format_path((*path, name))
                    )
                )
            ]
            if not writes:
                check_standing(view, nodes)
                return 0
            reads = self._kept(owner_id, dict(zip(names, known, strict=True)), {w.name for w in writes})
            guards = list(guards_of(nodes))
            if any(isinstance(read, Absent) for read in reads):
                guards[-1] = replace(guards[-1], exclusive=True)
            return Proposal(tuple(guards), tuple(writes), len, reads=reads)

        return mutate(
            self._session,
            self._kind,
            call_of(options),
            "write",
            owner,
            seal.guarding(attempt),
            len,
            lambda: [wanted, unwanted],
            name=", ".join(names[:3]),
        )

    def _kept(
        self, owner_id: int, known: Mapping[str, OwnedRecord | None], written: AbstractSet[str]
    ) -> tuple[Read, ...]:
        """Return the conditions on the rows that are not written: at the commit they must still be equal, or absent."""
        return tuple(
            [
                Absent(owner_id, self._kind.name, name, owned=True)
                if record is None
                else Expect(record.id, record.version, owned=True)
                for name, record in known.items()
                if name not in written
            ]
        )

    def _difference(
        self,
        owner_id: int,
        name: str,
        record: OwnedRecord | None,
        doc: str | None,
        secrets: Mapping[str, str],
        path: str,
    ) -> Put | Delete | None:
        if record is not None:
            check_partition(record, path)
        if doc is None:
            event = self.event("drop", path, None)
            return record and Delete(owner_id, self._kind.name, name, record.version, event, record.id)
        old = None if record is None else naming(partial(read_doc, record.doc), record.kind, owner_id, record.version)
        doc = bound_doc(doc, secrets, owner_id, old)
        if record is None or old is None:
            return Put(owner_id, self._kind.name, name, 0, doc, self.event("create", None, path))
        doc = kept_doc(doc, old)
        if json.loads(doc) == old:
            return None
        return Put(owner_id, self._kind.name, name, record.version, doc, self.event("alter", path, path), record.id)

    @shows_options(CallOptions)
    def drop(self, owner: Target, name: str, **options: Unpack[CallOptions]) -> bool:
        """Drop one row; return False if it does not exist."""
        name = clean_name(name)

        def attempt(view: View) -> Proposal[bool] | bool:
            try:
                nodes, path = self.place(View(view.backend, False), owner, name)
            except EntityNotFound:
                return False
            (record,) = view.backend.owned_by_name([nodes[-1].id], self._kind.name, [name])
            if record is None:
                check_standing(view, nodes)
                return False
            check_partition(record, path)
            event = self.event("drop", path, None)
            write = Delete(nodes[-1].id, self._kind.name, name, record.version, event, record.id)
            return Proposal(guards_of(nodes), (write,), lambda _: True)

        call = call_of(options)
        return mutate(self._session, self._kind, call, "drop", owner, attempt, lambda _: True, name=name)

    def place(self, view: View, owner: Target, name: str) -> tuple[tuple[Node, ...], str]:
        """Return the owner's nodes, with the owner last, and the row's path."""
        record = find(view, self._owner, owner)
        check_in_use(record.chain[:-1])
        return record.chain, format_path((*[n.name for n in record.chain], name))

    def _check_absent(self, view: View, nodes: tuple[Node, ...], name: str, path: str) -> None:
        (there,) = view.backend.owned_by_name([nodes[-1].id], self._kind.name, [name])
        if there is not None:
            check_standing(view, nodes)
            check_partition(there, path)
            raise EntityAlreadyExists(path, f"{path}: there is a {self._kind.name} of this name already")

    def event(self, action: str, before: str | None, after: str | None) -> Event:
        """Return the event of a row."""
        return Event(self._kind.name, action, before, after)


def _shown(backend: Reads, owner_id: int, kind: str, after: str, limit: int, guards: Guards) -> RowPage[OwnedRecord]:
    """Return up to ``limit`` next rows; skip those that are being dropped in steps."""
    kept: list[OwnedRecord] = []
    while True:
        page = backend.owned(owner_id, kind, after, limit, guards)
        kept += [row for row in page.rows if marked_by(row) is None]
        if not page.held or len(page.rows) < limit or len(kept) >= limit:
            return RowPage(page.held, kept[:limit])
        after = page.rows[-1].name


def still(backend: Reads, nodes: tuple[Node, ...]) -> bool:
    """Whether the path still leads to the owner, as it did when the owner's rows were read."""
    return backend.hold([(n.id, n.scope_version) for n in nodes])


class Partitions(OwnedManager[Partition]):
    """The partitions of tables."""

    def __init__(self, session: ManagerSession) -> None:
        super().__init__(session, PARTITION, TABLE)

    @shows_options(CallOptions)
    def create(
        self,
        table: Target,
        name: str,
        *,
        values: Mapping[str, str],
        properties: Mapping[str, str] = MappingProxyType({}),
        **options: Unpack[CallOptions],
    ) -> Partition:
        """Add a partition. Raises EntityAlreadyExists, EntityNotFound, NotInUse."""
        return self._insert(table, self._document(name, None, properties, {"values": values}), options)

    @shows_options(CallOptions)
    def begin_drop(self, table: Target, name: str, *, ttl: float = 60.0, **options: Unpack[CallOptions]) -> PendingDrop:
        """Announce the drop of a partition whose data lies outside of the store; see ``tables.begin_drop``.

        Raises EntityNotFound, DropPending; InvalidArgument in a transaction.
        """
        operation = self._session.clock.operation_id()
        begin = Begin(operation, positive_seconds(ttl, "a ttl"), partition=clean_name(name))
        return begin_drop(self._session, TABLE, table, begin, call_of(options))

    def row(self, name: str, values: Mapping[str, str], properties: Mapping[str, str]) -> Row:
        """Return a partition for ``put_many``."""
        return self._document(name, None, properties, {"values": values})
