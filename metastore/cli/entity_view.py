"""Write one entity as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from metastore.cli.around import Around
from metastore.cli.output import grid, safe, table, time, write, write_lines, write_table
from metastore.columns.column import Column
from metastore.kinds.attached import Attached
from metastore.kinds.catalog import Catalog
from metastore.kinds.declared import Kind
from metastore.kinds.entity import Entity
from metastore.kinds.fileset import Fileset
from metastore.kinds.function.kind import Function
from metastore.kinds.kind import to_json
from metastore.kinds.model.version import ModelVersion
from metastore.kinds.principal import Group, User
from metastore.kinds.registry import KINDS
from metastore.kinds.table.kind import Table
from metastore.kinds.view.kind import View
from metastore.names import format_path

__all__ = ["show_around", "show_entity", "show_versions"]

_FIGURES = ("nulls", "min", "max")
_MOST = 5
"""How many of the left-out files are named."""


def show_entity(
    out: Console, entity: Entity, statistics: Mapping[str, Any], partitions: int | None, *, owner: str | None = None
) -> None:
    """Write an entity. ``statistics``: those of a table, by name; ``partitions``: how many a table has."""
    write_lines(out, [[(f"{entity.kind} ", "dim"), (entity.path, "bold")]])
    write_table(out, grid({**_facts(entity), "owner": owner, **_table_facts(entity, statistics, partitions)}))
    if entity.properties:
        _heading(out, "Properties")
        write_table(out, grid({safe(key): value for key, value in entity.to_dict()["properties"].items()}))
    if isinstance(entity, Fileset) and entity.locations:
        _heading(out, "Locations")
        write_table(out, grid({safe(name): place for name, place in entity.locations.items()}))
    if isinstance(entity, Table | View) and entity.columns:
        _heading(out, "Columns")
        write_table(out, _columns(entity.columns, _column_figures(statistics)))
    if isinstance(entity, View):
        for query in entity.representations:
            _heading(out, f"In {safe(query.dialect)}")
            write(out, query.text)
    if isinstance(entity, Function):
        _definitions(out, entity)
    if entity.kind not in KINDS:
        _heading(out, "Fields, as stored")
        stored = {safe(name): to_json(value) for name, value in entity.doc.items()}
        write_table(out, grid({name: text for name, text in stored.items() if name not in ("comment", "properties")}))
    elif isinstance(KINDS[entity.kind], Kind):
        _fields(out, {name: getattr(entity, name) for name in type(entity).doc_fields})
    elif not isinstance(entity, Catalog | Fileset | Function | Table | View):
        own = {name: value for name, value in entity.to_dict().items() if name in type(entity).doc_fields}
        _fields(out, {name: value if isinstance(value, str) else to_json(value) for name, value in own.items()})


def show_around(out: Console, beside: Around) -> None:
    """Write the tags of an entity, and the grants to roles on it."""
    for title, lines in (("Tags", [_tag(one) for one in beside.tags]), ("Grants", [_grant(g) for g in beside.grants])):
        if lines:
            _heading(out, title)
            write_lines(out, ([(line, "")] for line in lines))


def _tag(one: Attached) -> str:
    value = "" if one.value is None else f" = {one.value}"
    where = "" if one.column is None else f"  column {one.column}"
    return f"{one.path}{value}{where}" + ("" if one.inherited_from is None else f"  (from {one.inherited_from})")


def _grant(grant: Mapping[str, str]) -> str:
    return f"{grant['effect']} {grant['privilege']}  {grant['role']}  on {grant['on']}"


def _fields(out: Console, fields: Mapping[str, Any]) -> None:
    shown = {name: value for name, value in fields.items() if value not in (None, "", "[]", "{}", "null")}
    if shown:
        _heading(out, "Fields")
        write_table(out, grid(shown))


def show_versions(out: Console, versions: Iterable[ModelVersion]) -> None:
    """Write the versions of a model."""
    rows = table("Version", "Aliases", "Places", "Comment", right=("Version",))
    for one in versions:
        places = "\n".join(uri if name == "default" else f"{name}: {uri}" for name, uri in one.uris.items())
        texts = (str(one.number), ", ".join(one.aliases), places, one.comment or "")
        rows.add_row(*[Text(safe(text)) for text in texts])
    if rows.row_count:
        _heading(out, "Versions")
        write_table(out, rows)


def _definitions(out: Console, entity: Function) -> None:
    for definition in entity.definitions:
        parameters = ", ".join(_signature(column) for column in definition.parameters)
        returns = definition.returns
        if not isinstance(returns, str):
            returns = f"table({', '.join(_signature(column) for column in returns)})"
        _heading(out, safe(f"({parameters}) -> {returns}"))
        for one in definition.implementations:
            label = f"{one.language} for {one.runtime or 'any runtime'}: "
            write_lines(out, [[(label, "dim"), (one.body, "")]])


def _signature(column: Column) -> str:
    return f"{format_path([column.name])} {column.type}" + ("" if column.default is None else f" = {column.default}")


def _heading(out: Console, text: str) -> None:
    out.print()
    out.print(Text(text, style="bold underline"))


def _facts(entity: Entity) -> dict[str, object]:
    return {
        "id": entity.id,
        "version": f"{entity.version} (scope {entity.scope_version})",
        "comment": entity.comment,
        "created": _by(time(entity.created_at), entity.created_by),
        "modified": _by(time(entity.modified_at), entity.modified_by),
        "enabled": "no: it has no rights" if isinstance(entity, User | Group) and not entity.enabled else None,
        "in use": None if getattr(entity, "in_use", True) else "no: disabled, nothing below it can be written",
        "type": entity.type if isinstance(entity, Catalog | Fileset | Function) else None,
        "provider": entity.provider if isinstance(entity, Catalog) else None,
        "looks in": _default(entity) if isinstance(entity, View) else None,
        "deterministic": ("yes" if entity.deterministic else "no") if isinstance(entity, Function) else None,
        "names": "compared without case" if isinstance(entity, Catalog) and entity.fold_case else None,
    }


def _default(view: View) -> str:
    return format_path(name for name in (view.default_catalog, view.default_schema) if name)


def _by(when: str, who: str | None) -> str:
    return f"{when} UTC" + (f" by {who}" if who else "")


def _table_facts(entity: Entity, statistics: Mapping[str, Any], partitions: int | None) -> dict[str, object]:
    if not isinstance(entity, Table):
        return {}
    figures = {key: value for values in statistics.values() for key, value in values.items() if isinstance(value, int)}
    return {
        "location": entity.location,
        "format": entity.format,
        "partitioned by": ", ".join(entity.partitioning),
        "partitions": partitions if partitions or entity.partitioning else None,
        "distribution": entity.distribution,
        "sorted by": ", ".join(entity.sort_orders),
        "indexes": "; ".join(f"{format_path([i.name])}: {i.type} ({', '.join(i.columns)})" for i in entity.indexes),
        "data": ", ".join(f"{figures[key]:,} {key}" for key in ("rows", "files", "bytes") if key in figures),
        "left out": _left_out(statistics),
    }


def _left_out(statistics: Mapping[str, Any]) -> str | None:
    """Return a text about the files in the table's folder that the crawler could not use; None: there are none."""
    files = statistics.get("crawl", {}).get("left_out", ())
    if isinstance(files, int):
        return f"{files:,} files"
    return f"{len(files):,} files: {', '.join(files[:_MOST])}{', …' if len(files) > _MOST else ''}" if files else None


def _column_figures(statistics: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the figures of each column, by its name."""
    by_column: dict[str, Mapping[str, Any]] = {}
    for values in statistics.values():
        columns = values.get("columns")
        if isinstance(columns, Mapping):
            by_column |= {name: figures for name, figures in columns.items() if isinstance(figures, Mapping)}
    return by_column


def _columns(columns: Sequence[Column], figures: Mapping[str, Mapping[str, Any]]) -> Any:
    known = [key for key in _FIGURES if any(key in figures.get(c.name, ()) for c in columns)]
    optional = {
        "Default": any(c.default is not None for c in columns),
        "Comment": any(c.comment for c in columns),
    }
    headers = [name for name, here in optional.items() if here]
    rows = table("Name", "Type", "Nullable", *headers, *map(str.capitalize, known), right=("Nulls",))
    for column in columns:
        row = [format_path([column.name]), column.type, "yes" if column.nullable else "no"]
        row += [(column.default if name == "Default" else column.comment) or "" for name in headers]
        row += [_figure(figures.get(column.name, {}).get(key)) for key in known]
        rows.add_row(*[Text(safe(text)) for text in row])
    return rows


def _figure(value: object) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
