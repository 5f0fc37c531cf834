"""The manager of statistics: figures about the data behind a table, a partition, a fileset or a model.

Users set values under names that begin with ``custom-``: strings, longs, doubles, booleans, lists and maps. Tools, such
as the crawler, use all other names; each of these holds a whole set of figures.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Unpack

from metastore.arguments import items, shown
from metastore.errors import EntityNotFound, InvalidArgument
from metastore.kinds.entity import Entity
from metastore.kinds.kind import MAX_DEPTH, dump, is_too_deep
from metastore.kinds.partition import PARTITION
from metastore.kinds.partition_statistic import PARTITION_STATISTIC, PartitionStatistic, belongs
from metastore.kinds.registry import KINDS
from metastore.kinds.statistic import STATISTIC, Statistic
from metastore.kinds.table.kind import TABLE
from metastore.managers.mutation import mutate
from metastore.managers.options import CallOptions, call_of, shows_options
from metastore.managers.owned import OwnedManager
from metastore.managers.owned_rows import Row
from metastore.managers.target import Target, check_standing, find, in_hand, place_of
from metastore.names import clean_name, clean_text, format_path
from metastore.operation.guards import guards_of
from metastore.operation.request import Proposal, View
from metastore.operation.session import ManagerSession
from metastore.port.backend import Reads
from metastore.port.records import OwnedRecord
from metastore.port.writes import Delete, Put

_CUSTOM: Final = "custom-"
_VALUE: Final = "value"
_MEASURED: Final = ("table", "fileset", "model")
_LONGEST: Final = 1 << 63
_ALL: Final = 1_000_000
"""More partitions than a table can have in a transaction."""

Value = str | int | float | bool | list[Any] | dict[str, Any]


class Statistics(OwnedManager[Statistic]):
    """The statistics of tables, of their partitions, of filesets and of models."""

    def __init__(self, session: ManagerSession) -> None:
        super().__init__(session, STATISTIC, TABLE)

    def row(self, name: str, values: Mapping[str, Any]) -> Row:
        """Return a tool's statistic for ``put_many``: a set of figures under a reserved name."""
        return self._document(name, None, {}, {"values": values})

    @shows_options(CallOptions)
    def set(
        self,
        target: Target,
        values: Mapping[str, Value],
        *,
        partition: str | None = None,
        kind: str = "table",
        **options: Unpack[CallOptions],
    ) -> None:
        """Set values by name in one commit; other values stay. ``kind`` is the kind of the entity at a path.

        ``partition``: set the values of this partition of the table. Raises EntityNotFound; InvalidArgument for a name
        that does not begin with ``custom-``, or a value of another type.
        """
        clean = _clean_values(values)
        if partition is None:
            rows = [self.row(name, {_VALUE: value}) for name, value in clean.items()]
            self._of_kind(target, kind).put_many(target, rows, **options)
        else:
            self._merge(target, clean_name(partition), lambda old: {**old, **clean}, clean, options)

    @shows_options(CallOptions)
    def remove(
        self,
        target: Target,
        names: Iterable[str],
        *,
        partition: str | None = None,
        kind: str = "table",
        **options: Unpack[CallOptions],
    ) -> int:
        """Remove values by name; return how many values existed. Raises EntityNotFound."""
        wanted = [_custom(name) for name in items(names, "names")]
        if partition is None:
            return self._of_kind(target, kind).put_many(target, [], wanted, **options)

        def left(old: Mapping[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in old.items() if name not in wanted}

        return self._merge(target, clean_name(partition), left, wanted, options)

    def of(self, target: Target, *, partition: str | None = None, kind: str = "table") -> dict[str, Any]:
        """Return all statistics of ``target``, or of one of its partitions, by name; those of tools are mappings.

        Raises EntityNotFound.
        """
        if partition is not None:
            name = clean_name(partition)
            by_partition = self.of_partitions(target, [name])
            if name not in by_partition:
                raise EntityNotFound(name, f"there is no partition {name}; see partitions.names()")
            return by_partition[name]
        rows = self._of_kind(target, kind).list(target)
        return {row.name: _shown(row.name, row.values) for row in rows}

    def of_partitions(self, table: Target, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the statistics of the named partitions, by name; skip partitions that do not exist.

        Raises EntityNotFound.

        The call takes one round trip for any number of partitions.
        """
        backend = self._session.backend
        wanted = list(dict.fromkeys([clean_name(name) for name in items(names, "names")]))
        where = place_of(TABLE, table)
        target = where.id if isinstance(where, Entity) else where
        kinds = (PARTITION.name, PARTITION_STATISTIC.name)
        while True:
            found = in_hand(backend, table, lambda: backend.owning(target, kinds, wanted))
            if found is not None and found.end.live and found.end.chain[-1].kind == TABLE.name:
                break
            find(View(backend, False), TABLE, table)  # raises if the table does not exist
        rows = {(row.kind, row.name): row for row in found.rows}
        partitions = [(name, row) for name in wanted if (row := rows.get((PARTITION.name, name))) is not None]
        return {name: _values(row, rows.get((PARTITION_STATISTIC.name, name))) for name, row in partitions}

    def _of_kind(self, target: Target, kind: str) -> OwnedManager[Statistic]:
        """Return the manager of the statistics of a target of this kind."""
        kind = target.kind if isinstance(target, Entity) else kind
        if kind not in _MEASURED:
            raise InvalidArgument(f"statistics are of a {', a '.join(_MEASURED)}, not of {shown(kind)}")
        return OwnedManager(self._session, STATISTIC, KINDS[kind])

    def _merge(self, table: Target, partition: str, change: Any, arguments: Any, options: CallOptions) -> int:
        """Apply ``change`` to the values of a partition; return how many values it removed."""
        rows = OwnedManager[PartitionStatistic](self._session, PARTITION_STATISTIC, TABLE)

        def attempt(view: View) -> Proposal[int] | int:
            nodes, path = rows.place(View(view.backend, False), table, partition)
            (there,) = view.backend.owned_by_name([nodes[-1].id], PARTITION.name, [partition])
            (row,) = view.backend.owned_by_name([nodes[-1].id], PARTITION_STATISTIC.name, [partition])
            if there is None:
                check_standing(view, nodes)
                raise EntityNotFound(path, f"{path}: there is no such partition; see partitions.names()")
            before = _values(there, row)
            after = change(before)
            if after == before and (row is not None or not after):
                check_standing(view, nodes)
                return 0
            doc = dump(PARTITION_STATISTIC.document(None, {}, {"values": after}), (partition,))
            writes = tuple(_writes(rows, nodes[-1].id, partition, doc, path, row, stale=not _fits(there, row)))
            return Proposal(guards_of(nodes), writes, lambda _: max(0, len(before) - len(after)))

        session, kind, call = self._session, PARTITION_STATISTIC, call_of(options)
        return mutate(session, kind, call, "write", table, attempt, len, lambda: arguments, name=partition)


def _values(partition: OwnedRecord | None, row: OwnedRecord | None) -> dict[str, Any]:
    """Return the values of a partition; ignore a row of an earlier partition of this name."""
    return {} if row is None or not _fits(partition, row) else dict(json.loads(row.doc)["values"])


def _fits(partition: OwnedRecord | None, row: OwnedRecord | None) -> bool:
    return partition is not None and row is not None and belongs(row.id, partition.id)


def _writes(
    rows: OwnedManager[PartitionStatistic],
    table_id: int,
    name: str,
    doc: str,
    path: str,
    row: OwnedRecord | None,
    *,
    stale: bool,
) -> Iterator[Put | Delete]:
    """Yield the writes of a partition's values; before them, delete a row of an earlier partition of this name."""
    kind = PARTITION_STATISTIC.name
    if row is not None and stale:
        yield Delete(table_id, kind, name, row.version, rows.event("drop", path, None), row.id)
    if row is None or stale:
        yield Put(table_id, kind, name, 0, doc, rows.event("create", None, path))
    else:
        yield Put(table_id, kind, name, row.version, doc, rows.event("alter", path, path), row.id)


def revert_partition_statistics(session: ManagerSession, table: Entity, then: Reads) -> None:
    """Restore the statistics of a table's partitions to those in ``then``; the partitions must be reverted before."""
    rows = OwnedManager[PartitionStatistic](session, PARTITION_STATISTIC, TABLE)

    def attempt(view: View) -> Proposal[None] | None:
        nodes, _ = rows.place(View(view.backend, False), table, "")
        table_id, above = nodes[-1].id, [node.name for node in nodes]
        old, new = (_by_partition(reads, table_id) for reads in (then, view.backend))
        writes = list[Put | Delete]()
        for name, (partition, row) in new.items():
            was, path = _fitting(*old.get(name, (None, None))), format_path((*above, name))
            there = _fitting(partition, row)
            if was is None and there is not None:
                event = rows.event("drop", path, None)
                writes.append(Delete(table_id, there.kind, name, there.version, event, there.id))
            elif was is not None and (there is None or there.doc != was.doc):
                writes += _writes(rows, table_id, name, was.doc, path, row, stale=there is None)
        return Proposal(guards_of(nodes), tuple(writes), lambda _: None) if writes else None

    mutate(session, PARTITION_STATISTIC, call_of({}), "revert", table, attempt, lambda _: None, name="")


def partition_contents(reads: Reads, table_id: int) -> dict[str, tuple[str, str | None]]:
    """Return the documents of each partition and of its statistics, by the partition's name."""
    found = _by_partition(reads, table_id)
    fitting = {name: _fitting(partition, row) for name, (partition, row) in found.items()}
    return {name: (found[name][0].doc, row and row.doc) for name, row in fitting.items()}


def _by_partition(reads: Reads, table_id: int) -> dict[str, tuple[OwnedRecord, OwnedRecord | None]]:
    kinds = (PARTITION.name, PARTITION_STATISTIC.name)
    partitions, rows = ({r.name: r for r in reads.owned(table_id, kind, "", _ALL, ()).rows} for kind in kinds)
    return {name: (partition, rows.get(name)) for name, partition in partitions.items()}


def _fitting(partition: OwnedRecord | None, row: OwnedRecord | None) -> OwnedRecord | None:
    """Return the row if it belongs to this partition. A partition made by the same transaction has no id yet."""
    return row if partition is not None and partition.id and _fits(partition, row) else None


def _shown(name: str, values: Mapping[str, Any]) -> Any:
    return values[_VALUE] if name.startswith(_CUSTOM) and set(values) == {_VALUE} else dict(values)


def _custom(name: Any) -> str:
    clean = clean_name(name)
    if not clean.startswith(_CUSTOM) or clean == _CUSTOM:
        raise InvalidArgument(
            f"a statistic's name begins with {_CUSTOM}, not {shown(name)}: all other names are reserved for tools"
        )
    return clean


def _clean_values(values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping) or not values:
        raise InvalidArgument(f"statistics are a mapping of names to values, not {shown(values)}")
    clean = {_custom(name): _clean_value(value, f"the statistic {shown(name)}") for name, value in values.items()}
    if is_too_deep(clean):
        raise InvalidArgument(f"lists and maps of a statistic are nested more than {MAX_DEPTH} deep")
    return clean


def _clean_value(value: Any, what: str, depth: int = 0) -> Any:
    """Return a string, a long, a double, a boolean, or a list or map of such values."""
    if depth > MAX_DEPTH:
        raise InvalidArgument(f"{what} is nested more than {MAX_DEPTH} deep")
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -_LONGEST <= value < _LONGEST:
            raise InvalidArgument(f"{what} has more than 64 bits")
        return int(value)
    if isinstance(value, float):
        if value - value != 0:
            raise InvalidArgument(f"{what} is not a finite number")
        return float(value)
    if isinstance(value, str):
        return clean_text(value, what)
    if isinstance(value, list | tuple):
        return [_clean_value(below, what, depth + 1) for below in value]
    if isinstance(value, Mapping):
        return {clean_text(k, f"a key of {what}"): _clean_value(v, what, depth + 1) for k, v in value.items()}
    raise InvalidArgument(f"{what} is a string, a number, a boolean, a list or a map, not {shown(value)}")
