"""Read all entities of a metalake with their documents: parents first, one schema at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from metastore.errors import InvalidArgument, MetastoreError
from metastore.imports.gravitino.past import Past, read_past
from metastore.imports.gravitino.report import Report
from metastore.imports.gravitino.source import Row, Source
from metastore.imports.gravitino.things import BELOW_METALAKE, BELOW_SCHEMA, CATALOG, METALAKE, SCHEMA, Shape, Thing
from metastore.imports.gravitino.tree import Tree
from metastore.imports.gravitino.values import DAMAGED, Key, check_size, json_of, known_audit
from metastore.names import clean_name
from metastore.serve.gravitino.errors import Refused
from metastore.serve.web import BadRequest

__all__ = ["Entity", "entities", "name_other_statistics", "read_one"]


_CHUNK: Final = 1000
"""How many entities are read together, with the rows of their versions."""


class Entity(NamedTuple):
    """An entity that was read."""

    key: Key
    names: tuple[str, ...]
    thing: Thing
    audit: dict[str, Any]
    row: Row
    past: Sequence[Past] = ()


def entities(source: Source, metalake: Row, tree: Tree, report: Report, *, past: bool) -> Iterator[Entity]:
    """Yield the entities of a metalake; report and leave out each one that cannot be read, with all below it.

    ``past``: read the earlier versions of each, too.
    """

    def made(shape: Shape, rows: Iterable[Row]) -> Iterator[Entity]:
        every = _once(shape, rows, tree)
        for start in range(0, len(every), _CHUNK):
            known = every[start : start + _CHUNK]
            parts = _parts(shape, source, known)
            versions = read_past(shape, source, known, parts.get("column", {}), read_one) if past else {}
            for one in _made(shape, known, parts, tree, report):
                yield one._replace(past=versions.get(one.key[1], ()))

    yield from made(METALAKE, [metalake])
    for shape in BELOW_METALAKE:
        yield from made(shape, source.rows(shape.table, metalake_id=tree.id))
    yield from made(CATALOG, source.rows(CATALOG.table, metalake_id=tree.id))
    yield from made(SCHEMA, source.rows(SCHEMA.table, metalake_id=tree.id))
    for (_, schema), _ in list(tree.schemas()):
        for shape in BELOW_SCHEMA:
            yield from made(shape, source.rows(shape.table, schema_id=schema))


def _once(shape: Shape, rows: Iterable[Row], tree: Tree) -> list[Row]:
    """Return the rows of the entities that are imported, each once; the tree has reported the others."""
    once: dict[int, Row] = {}
    for row in rows:
        try:
            key = shape.key(row)
        except DAMAGED:
            continue
        if (shape.kind, key) in tree.names:
            once.setdefault(key, row)
    return list(once.values())


def _made(
    shape: Shape, known: list[Row], parts: dict[str, dict[int, list[Row]]], tree: Tree, report: Report
) -> Iterator[Entity]:
    for row in known:
        key = (shape.kind, shape.key(row))
        thing = read_one(shape, row, {word: some.get(key[1], []) for word, some in parts.items()})
        names = tree.names[key]
        if isinstance(thing, str):
            report.find("unreadable", f"{shape.kind} {'.'.join(names)} ({key[1]}): {thing}")
            tree.forget(key)
        else:
            if shape.kind == "table":
                of_table = [row for row in parts["statistic"].get(key[1], []) if _is_of_table(row)]
                thing.owned.extend(_statistics(of_table, parts["partition"].get(key[1], []), report, names))
            yield Entity(key, names, thing, known_audit(row, report, f"the {key[0]} {'.'.join(names)}"), row)


def read_one(shape: Shape, row: Row, parts: dict[str, list[Row]]) -> Thing | str:
    """Return the entity that a row becomes, or the reason why it cannot be read."""
    try:
        thing = shape.make(row, parts)
        for doc in (thing.doc, *[doc for _, _, doc in thing.owned]):
            check_size(doc)
        return thing
    except (MetastoreError, BadRequest, Refused) as error:
        return str(error)
    except DAMAGED as error:
        return f"its row or the rows of its versions are damaged ({type(error).__name__}: {error})"


def _parts(shape: Shape, source: Source, rows: Sequence[Row]) -> dict[str, dict[int, list[Row]]]:
    """Return the rows of other tables that belong to these rows, by word and id."""
    ids = [shape.key(row) for row in rows]
    parts = {w: source.newest(table, f"{shape.prefix}_id", ids, version) for w, (table, version) in shape.parts.items()}
    if shape.kind == "table":
        parts["statistic"] = source.newest("statistic_meta", "metadata_object_id", ids, "statistic_name")
        parts["partition"] = source.newest("partition_statistic_meta", "table_id", ids, "partition_name")
    if shape.kind == "job":
        of = {shape.key(row): _template_of(row) for row in rows}
        templates = source.newest("job_template_meta", "job_template_id", sorted(set(of.values())), "job_template_id")
        parts["template"] = {key: templates.get(template, []) for key, template in of.items()}
    return parts


def _template_of(job: Row) -> int:
    """Return the id of a job's template; -1, which no template has, for a damaged row."""
    try:
        return int(job["job_template_id"])
    except DAMAGED:
        return -1


def _statistics(
    statistics: list[Row], of_partitions: list[Row], report: Report, names: tuple[str, ...]
) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the rows of a table's statistics, and those of its partitions."""

    def read(row: Row) -> dict[str, Any]:
        try:
            value = {clean_name(str(row["statistic_name"])): json_of(row["statistic_value"])}
            check_size(_values(value))
            return value
        except (*DAMAGED, InvalidArgument) as error:
            what = f"statistic {str(row.get('statistic_name'))[:255]!r} of the table {'.'.join(names)}"
            report.find("unreadable", f"{what} ({type(error).__name__})")
            return {}

    owned = [("statistic", name, _values({"value": value})) for row in statistics for name, value in read(row).items()]
    partitions: dict[str, dict[str, Any]] = {}
    for row in of_partitions:
        try:
            partition = clean_name(str(row["partition_name"]))
        except InvalidArgument as error:
            report.find("unreadable", f"a partition of the table {'.'.join(names)}: {error}")
        else:
            partitions.setdefault(partition, {}).update(read(row))
    for name, values in sorted(partitions.items()):
        pairs = dict(part.split("=", 1) for part in name.split("/") if "=" in part)
        owned.append(("partition", name, _values(pairs)))
        try:
            check_size(_values(values))  # each value fits alone, but one document holds all values of a partition
        except (ValueError, InvalidArgument) as error:
            what = f"the statistics of the partition {name!r} of the table {'.'.join(names)}"
            report.find("unreadable", f"{what}: {error}")
        else:
            owned.append(("partition_statistic", name, _values(values)))
    return owned


def _is_of_table(row: Row) -> bool:
    return str(row.get("metadata_object_type") or "TABLE").upper() == "TABLE"


def name_other_statistics(source: Source, metalake: int, report: Report) -> None:
    """Report the statistics of entities that cannot have statistics here."""
    for row in source.rows("statistic_meta", metalake_id=metalake):
        if not _is_of_table(row):
            kind = str(row["metadata_object_type"]).lower()
            what = f"statistic {row.get('statistic_name')!r} of the {kind} {row.get('metadata_object_id')}"
            report.find("unknown", f"{what}: only tables have statistics here")


def _values(values: dict[str, Any]) -> dict[str, Any]:
    return {"comment": None, "properties": {}, "values": values}
