"""The details of an entity: facts, columns in pages, the parts of its kind, attachments, properties."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from metastore.columns.column import Column
from metastore.errors import MetastoreError
from metastore.kinds.attached import Attached
from metastore.kinds.entity import Entity
from metastore.managers.all import Managers
from metastore.names import format_path
from metastore.plain import plain
from metastore.secrets.names import without_secrets
from metastore.serve.console.asked import Asked, bounded, url
from metastore.serve.console.words import exactly, short, value_text

__all__ = ["details"]

_COLUMNS: Final = 100
_ROWS: Final = 100
_LONGEST: Final = 20_000
"""How many characters of a text are shown."""
_ATTACHED: Final = 200
_OWN: Final = frozenset({"columns", "properties", "representations", "definitions", "output", "locations"})
"""Fields that have their own part of the page."""
_SHAPES: Final[Mapping[str, str]] = {"partitioning": "partitioned by", "sort_orders": "sorted by"}


@dataclass(frozen=True)
class Cell:
    """A column of a table or a view."""

    column: Column
    tags: Sequence[Attached]


@dataclass(frozen=True)
class Text:
    """A long text with a heading: a query, a body, a job's output."""

    heading: str
    text: str
    is_cut: bool


class Link(NamedTuple):
    """A text with a link."""

    text: str
    address: str


Rows = Sequence[Sequence[str | Link]]


@dataclass(frozen=True)
class Table:
    """A small table with values of one kind of entity."""

    heading: str
    heads: Sequence[str]
    rows: Rows
    more: str | None = None
    """The address of the next page."""
    is_cut: bool = False
    """Whether there may be more rows, which no page shows."""


@dataclass
class _Parts:
    texts: list[Text] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


def details(asked: Asked, entity: Entity) -> dict[str, Any]:
    """Return everything that the page of an entity shows."""
    if version := asked.number("version", 0):
        entity = asked.store.manager(entity.kind).load(entity, version=version)
    reader = asked.reader
    parts = _Parts()
    _own_parts(asked, reader, entity, parts)
    return {
        "shown": entity,
        "version": version,
        "facts": _facts(entity),
        **_columns(asked, reader, entity),
        "texts": parts.texts,
        "tables": parts.tables,
        "properties": [(key, value_text(key, value)) for key, value in sorted(entity.properties.items())],
        **_attached(reader, entity),
        "iceberg": None if asked.at or version else asked.files.of(asked.principal, entity),
    }


def _facts(entity: Entity) -> list[tuple[str, str]]:
    facts = []
    for name in type(entity).doc_fields:
        value = getattr(entity, name)
        if name in _OWN or value in (None, (), {}, ""):
            continue
        facts.append((_SHAPES.get(name, name.replace("_", " ")), _fact(name, value)))
    if not getattr(entity, "in_use", True):
        facts.append(("in use", "no: it is disabled, and nothing below it can be written"))
    if getattr(entity, "enabled", True) is False:
        facts.append(("enabled", "no"))
    return facts


def _fact(name: str, value: Any) -> str:
    if name.endswith("_at") and isinstance(value, int):
        return f"{exactly(datetime.fromtimestamp(value / 1_000_000, UTC))} UTC"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int):
        return str(value)
    if name == "indexes":
        return "; ".join(f"{one.name}: {one.type} ({', '.join(one.columns)})" for one in value)
    shown = without_secrets(plain(value), name)
    if isinstance(shown, list) and all(isinstance(one, str) for one in shown):
        return ", ".join(shown)
    return json.dumps(shown, ensure_ascii=False)[:_LONGEST]


def _columns(asked: Asked, reader: Managers, entity: Entity) -> dict[str, Any]:
    columns: Sequence[Column] = getattr(entity, "columns", ())
    first = min(asked.number("column", 0), max(0, len(columns) - 1))
    shown = columns[first : first + _COLUMNS]
    tags: dict[str, list[Attached]] = {}
    if shown and not asked.number("version", 0):
        for one in _or_none(lambda: reader.tags.on_columns(entity)):
            tags.setdefault(one.column or "", []).append(one)
    cells = [Cell(column, tags.get(format_path([column.name]), [])[:20]) for column in shown]
    last = first + len(shown)
    return {
        "columns": cells,
        "column_count": len(columns),
        "column_first": first + 1,
        "column_last": last,
        "columns_before": asked.here(column=max(0, first - _COLUMNS) or None) if first else None,
        "columns_after": asked.here(column=last) if last < len(columns) else None,
        "has_comments": any(column.comment for column in shown),
        "has_defaults": any(column.default is not None for column in shown),
    }


def _or_none(read: Any) -> Sequence[Any]:
    """Return the attached objects; none if they are not known at a moment of the past."""
    try:
        found: Sequence[Any] = read()
    except MetastoreError:
        return ()
    return found


def _attached(reader: Managers, entity: Entity) -> dict[str, Any]:
    is_child = len(entity.names) > 1
    tags = _or_none(lambda: reader.tags.on(entity)) if is_child or entity.kind == "metalake" else ()
    policies = _or_none(lambda: reader.policies.on(entity))
    owners = _or_none(lambda: reader.relations("owner").on(entity))
    return {
        "tags": tags[:_ATTACHED],
        "tags_left": max(0, len(tags) - _ATTACHED),
        "policies": policies[:_ATTACHED],
        "policies_left": max(0, len(policies) - _ATTACHED),
        "owner": owners[0] if owners else None,
    }


def _some(read: Callable[[], Iterable[Any]]) -> tuple[Sequence[Any], bool]:
    """Return the first attached objects, as :func:`_or_none` does, and whether there may be more."""
    try:
        return bounded(read(), _ROWS, 1.0)
    except MetastoreError:
        return (), False


# --- the parts of each kind


def _own_parts(asked: Asked, reader: Managers, entity: Entity, parts: _Parts) -> None:
    match entity.kind:
        case "table":
            _of_table(asked, reader, entity, parts)
        case "view":
            queries = getattr(entity, "representations", ())
            parts.texts += [_text(f"In {one.dialect}", one.text) for one in queries[:_ROWS]]
        case "function":
            _of_function(entity, parts)
        case "model":
            _of_model(asked, reader, entity, parts)
        case "fileset":
            places = [(name, place) for name, place in getattr(entity, "locations", {}).items()]
            parts.tables += _table("Locations", ("Name", "Location"), places)
        case "job":
            output = getattr(entity, "output", "")
            parts.texts += [_text("Output", output)] if output else []
        case "tag" | "policy":
            _targets(reader, entity, parts)
        case "role" | "group" | "user":
            _of_principal(reader, entity, parts)


def _to(kind: str, path: str) -> Link:
    return Link(path, url("place", path=path, kind=kind))


def _text(heading: str, text: str) -> Text:
    return Text(heading, text[:_LONGEST], len(text) > _LONGEST)


def _table(
    heading: str, heads: Sequence[str], rows: Rows, more: str | None = None, *, is_cut: bool = False
) -> list[Table]:
    return [Table(heading, heads, rows, more, is_cut)] if rows else []


def _of_table(asked: Asked, reader: Managers, entity: Entity, parts: _Parts) -> None:
    rows = []
    found, is_cut = _some(lambda: reader.statistics.list(entity, page_size=_ROWS))
    for one in found:
        figures = {key: value for key, value in one.values.items() if key != "columns"}
        rows += [(one.name, key, short(_fact(key, value), 300)) for key, value in figures.items()]
    parts.tables += _table("Statistics", ("Name", "Figure", "Value"), rows[:_ROWS], is_cut=is_cut or len(rows) > _ROWS)
    if asked.at is None:
        page = reader.partitions.page(entity, size=_ROWS, token=asked.text("partitions"))
        shown = [(one.name, ", ".join(f"{k} = {v}" for k, v in one.values.items())) for one in page.items]
        more = None if page.next_token is None else asked.here(partitions=page.next_token)
        parts.tables += _table("Partitions", ("Name", "Values"), shown, more)


def _of_function(entity: Entity, parts: _Parts) -> None:
    for definition in getattr(entity, "definitions", ())[:_ROWS]:
        given = ", ".join(f"{one.name} {one.type}" for one in definition.parameters)
        returns = definition.returns
        if not isinstance(returns, str):
            returns = f"table({', '.join(f'{one.name} {one.type}' for one in returns)})"
        for one in definition.implementations:
            parts.texts.append(_text(f"({given}) → {returns}, in {one.language}", str(getattr(one, "body", "") or "")))


def _of_model(asked: Asked, reader: Managers, entity: Entity, parts: _Parts) -> None:
    if asked.at is not None:
        return
    page = reader.models.versions_page(entity, size=_ROWS, token=asked.text("versions"))
    rows = [
        (
            str(one.number),
            ", ".join(one.aliases),
            ", ".join(f"{name}: {uri}" for name, uri in one.uris.items()),
            one.comment or "",
        )
        for one in page.items
    ]
    more = None if page.next_token is None else asked.here(versions=page.next_token)
    parts.tables += _table("Versions", ("Version", "Aliases", "Places", "Comment"), rows, more)


def _targets(reader: Managers, entity: Entity, parts: _Parts) -> None:
    manager = reader.tags if entity.kind == "tag" else reader.policies
    found, is_cut = _some(lambda: manager.targets(entity))
    rows = [
        (one.target_kind, _to(one.target_kind, one.target_path), one.column or "", one.value or "") for one in found
    ]
    parts.tables += _table("Where it is attached", ("Kind", "Path", "Column", "Value"), rows, is_cut=is_cut)


def _of_principal(reader: Managers, entity: Entity, parts: _Parts) -> None:
    def add(heading: str, heads: Sequence[str], read: Callable[[], Iterable[Any]], row: Callable[[Any], Any]) -> None:
        found, is_cut = _some(read)
        parts.tables += _table(heading, heads, [row(one) for one in found], is_cut=is_cut)

    def link(one: Any) -> Any:
        return (_to(one.kind, one.path),)

    def with_kind(one: Any) -> Any:
        return one.kind, _to(one.kind, one.path)

    def grant(one: Any) -> Any:
        return one.effect, one.privilege, _to(one.kind, one.path), one.kind

    if entity.kind == "role":
        add("What it grants", ("Effect", "Privilege", "On", "Kind"), lambda: reader.roles.grants(entity), grant)
        add("Who has it", ("Kind", "Name"), lambda: reader.roles.members(entity), with_kind)
        return
    add("Roles", ("Role",), lambda: reader.roles.of(entity), link)
    if entity.kind == "group":
        add("Members", ("User",), lambda: reader.groups.members(entity), link)
    else:
        add("Groups", ("Group",), lambda: reader.users.groups(entity), link)
    add("Owns", ("Kind", "Path"), lambda: reader.owners.owned_by(entity), with_kind)
