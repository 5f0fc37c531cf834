"""Turn rows of Gravitino into entities of the store: for each kind the table, and the document that a row becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from metastore.columns.column import Column
from metastore.imports.gravitino.source import Row
from metastore.imports.gravitino.values import comment, json_of, known_version, properties
from metastore.kinds.registry import KINDS
from metastore.kinds.view.document import SQL
from metastore.serve.gravitino.expressions import (
    default_text,
    distribution_text,
    index_of,
    order_text,
    partitioning_text,
)
from metastore.serve.gravitino.functions import definition_of
from metastore.serve.gravitino.jobs import parts_of
from metastore.serve.gravitino.types import type_text

__all__ = ["BELOW_METALAKE", "BELOW_SCHEMA", "CATALOG", "METALAKE", "SCHEMA", "Parts", "Shape", "Thing"]

Parts = Mapping[str, list[Row]]
"""The rows of other tables that belong to one row, by the word that a shape gives them."""


@dataclass(frozen=True)
class Thing:
    """An entity: its document, and its other values."""

    doc: dict[str, Any]
    in_use: bool = True
    version: int = 1
    columns: tuple[int, ...] = ()
    """Of a table: Gravitino's ids of its columns, in their order."""
    owned: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    """Kind, name and document of each row that it owns."""


@dataclass(frozen=True)
class Shape:
    """A kind: its table, the prefix of its columns, the tables of its versions, and the function that reads a row."""

    kind: str
    table: str
    prefix: str
    make: Callable[[Row, Parts], Thing]
    parts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """For each word, a table and its column with the version."""
    current: str = "current_version"
    """The column with the number of the current version."""

    def key(self, row: Row) -> int:
        """Return Gravitino's id."""
        return int(row[f"{self.prefix}_id"])

    def name(self, row: Row) -> str:
        """Return the name; for a job one with its id, because Gravitino's jobs have no name."""
        return f"job-{self.key(row)}" if self.kind == "job" else str(row[f"{self.prefix}_name"])


def _doc(kind: str, said: str | None, given: Mapping[str, str], **fields: Any) -> dict[str, Any]:
    return KINDS[kind].document(said, given, fields)


def _simple(kind: str, said: str, given: str = "properties") -> Callable[[Row, Parts], Thing]:
    """Return the maker of a kind that has nothing but a comment and properties."""

    def make(row: Row, _: Parts) -> Thing:
        pairs, in_use = properties(row, given, can_be_disabled=kind == "metalake")
        return Thing(_doc(kind, comment(row, said), pairs), in_use, known_version(row))

    return make


def _catalog(row: Row, _: Parts) -> Thing:
    pairs, in_use = properties(row, can_be_disabled=True)
    kind = str(row["type"]).lower()
    doc = _doc("catalog", comment(row, "catalog_comment"), pairs, type=kind, provider=row.get("provider") or None)
    return Thing(doc, in_use, known_version(row))


def _current(row: Row, versions: list[Row], column: str = "current_version") -> list[Row]:
    """Return the rows of the current version; if they are missing, those of the newest."""
    wanted = row.get(column)
    current = [one for one in versions if one["version"] == wanted]
    return current or [one for one in versions if one["version"] == versions[-1]["version"]]


def _table(row: Row, parts: Parts) -> Thing:
    said: Row = next(iter(_current(row, parts["version"])), {}) if parts["version"] else {}
    pairs, _ = properties(said)
    columns = _columns(row, parts["column"])
    doc = _doc(
        *("table", comment(said, "comment"), pairs),
        columns=[column for _, column in columns],
        partitioning=[partitioning_text(one) for one in json_of(said.get("partitioning"), []) or []],
        distribution=distribution_text(json_of(said.get("distribution"))),
        sort_orders=[order_text(one) for one in json_of(said.get("sort_orders"), []) or []],
        indexes=[index_of(one) for one in json_of(said.get("indexes"), []) or []],
        location=pairs.get("location"),
        format=said.get("format") or None,
    )
    return Thing(doc, version=known_version(row), columns=tuple(key for key, _ in columns))


_DELETED: Final = 3
"""The column_op_type of a column that was dropped in a version."""


def _columns(row: Row, versions: list[Row]) -> list[tuple[int, Column]]:
    """Return the columns at the table's version: of each the newest row up to it, unless that drops the column."""
    newest: dict[int, Row] = {}
    for one in versions:
        if one["table_version"] <= row["current_version"]:
            newest[one["column_id"]] = one
    there = sorted(
        (one for one in newest.values() if one["column_op_type"] != _DELETED), key=lambda one: one["column_position"]
    )
    return [(int(one["column_id"]), _column(one)) for one in there]


@lru_cache(1024)
def _type_of(text: str) -> str:
    """Return a column's type. Cached: most columns of a lake have one of a few types."""
    return type_text(json_of(text))


@lru_cache(1024)
def _default_of(text: str | None) -> Any:
    return default_text(json_of(text))


def _column(one: Row) -> Column:
    return Column(
        one["column_name"],
        _type_of(one["column_type"]),
        nullable=one["column_nullable"] == 0,
        default=_default_of(one["column_default_value"]),
        comment=one["column_comment"] or None,
        auto_increment=one["column_auto_increment"] == 0,
    )


def _view(row: Row, parts: Parts) -> Thing:
    if not parts["version"]:  # Gravitino 1.2 keeps only the names of views: the engine has their texts
        return Thing(_doc("view", None, {}), version=known_version(row))
    (said, *_) = _current(row, parts["version"])
    pairs, _ = properties(said)
    columns = [_of_json(one) for one in json_of(said["columns"], [])]
    queries = [SQL(one["dialect"], one["sql"]) for one in json_of(said["representations"], [])]
    above = {key: said.get(key) or None for key in ("default_catalog", "default_schema")}
    doc = _doc("view", comment(said, "view_comment"), pairs, columns=columns, representations=queries, **above)
    return Thing(doc, version=known_version(row))


def _of_json(one: Mapping[str, Any]) -> Column:
    return Column(
        one["name"],
        type_text(one.get("type")),
        nullable=bool(one.get("nullable", True)),
        default=default_text(one.get("defaultValue")),
        comment=one.get("comment") or None,
        auto_increment=bool(one.get("autoIncrement")),
    )


def _fileset(row: Row, parts: Parts) -> Thing:
    said = _current(row, parts["version"])
    pairs, _ = properties(said[0])
    # a fileset of Gravitino 0.9 has no names of locations
    names = [one.get("storage_location_name") or "unknown" for one in said]
    places = dict(zip(names, [one["storage_location"] for one in said], strict=True))
    kind = str(row["type"]).lower()
    doc = _doc("fileset", comment(said[0], "fileset_comment"), pairs, type=kind, locations=places)
    return Thing(doc, version=known_version(row))


def _model(row: Row, parts: Parts) -> Thing:
    pairs, _ = properties(row, "model_properties")
    numbers: dict[int, list[Row]] = {}
    for one in parts["version"]:
        numbers.setdefault(int(one["version"]) + 1, []).append(one)
    by: dict[int, list[str]] = {}
    for one in parts["alias"]:
        by.setdefault(int(one["model_version"]) + 1, []).append(one["model_version_alias"])
    aliases = {alias: number for number in sorted(numbers) for alias in sorted(by.get(number, ()))}
    doc = _doc("model", comment(row, "model_comment"), pairs)
    latest = max([int(row.get("model_latest_version") or 0), *numbers])
    doc.update(latest_version=latest, aliases=dict(sorted(aliases.items())))
    owned = [_model_version(number, rows, sorted(by.get(number, ()))) for number, rows in sorted(numbers.items())]
    return Thing(doc, owned=owned)


def _model_version(number: int, rows: list[Row], aliases: list[str]) -> tuple[str, str, dict[str, Any]]:
    pairs, _ = properties(rows[0], "model_version_properties")
    said = comment(rows[0], "model_version_comment")
    uris = {one.get("model_version_uri_name") or "unknown": one["model_version_uri"] for one in rows}
    return "model_version", str(number), {"comment": said, "properties": pairs, "uris": uris, "aliases": aliases}


def _function(row: Row, parts: Parts) -> Thing:
    (said, *_) = _current(row, parts["version"], "function_current_version")
    definitions = [definition_of(one) for one in json_of(said["definitions"], [])]
    kind, fixed = str(row["function_type"]).lower(), bool(row.get("deterministic"))
    words = {"type": kind, "deterministic": fixed, "definitions": definitions}
    doc = _doc("function", comment(said, "function_comment"), {}, **words)
    return Thing(doc, version=known_version(row, "function_current_version"))


def _tag(row: Row, _: Parts) -> Thing:
    pairs = properties(row)[0]
    values = json_of(row.get("allowed_values"), []) or []
    return Thing(_doc("tag", comment(row, "tag_comment"), pairs, allowed_values=values), version=known_version(row))


def _policy(row: Row, parts: Parts) -> Thing:
    (said, *_) = _current(row, parts["version"])
    content = dict(json_of(said["content"], {}) or {})
    kinds = [str(kind).lower() for kind in content.pop("supportedObjectTypes", None) or []]
    words = {"type": row["policy_type"], "content": content, "enabled": bool(said["enabled"]), "supports": kinds}
    return Thing(_doc("policy", comment(said, "policy_comment"), {}, **words), version=known_version(row))


def _principal(kind: str) -> Callable[[Row, Parts], Thing]:
    def make(row: Row, _: Parts) -> Thing:
        enabled = row.get("enabled")
        doc = _doc(kind, None, {}, external_id=row.get("external_id") or None)
        return Thing(doc, enabled is None or bool(enabled), known_version(row))

    return make


def _role(row: Row, _: Parts) -> Thing:
    pairs = properties(row)[0]
    return Thing(_doc("role", None, pairs), version=known_version(row))


def _job_template(row: Row, _: Parts) -> Thing:
    content = json_of(row["job_template_content"], {})
    kind = str(content.get("jobType")).lower()
    doc = _doc("job_template", row.get("job_template_comment") or None, {}, type=kind, **parts_of(content, kind))
    return Thing(doc, version=known_version(row))


def _job(row: Row, parts: Parts) -> Thing:
    (template, *_) = parts["template"]
    times = {
        name: int(row.get(column) or 0) * 1000 or None
        for name, column in (("started_at", "job_started_at"), ("finished_at", "job_finished_at"))
    }
    status = str(row["job_run_status"]).lower()
    words = {"template": template["job_template_name"], "status": status, "execution_id": row["job_execution_id"]}
    return Thing(_doc("job", None, {}, **words, **times), version=known_version(row))


METALAKE: Final = Shape("metalake", "metalake_meta", "metalake", _simple("metalake", "metalake_comment"))
CATALOG: Final = Shape("catalog", "catalog_meta", "catalog", _catalog)
SCHEMA: Final = Shape("schema", "schema_meta", "schema", _simple("schema", "schema_comment"))
BELOW_METALAKE: Final = (
    Shape("tag", "tag_meta", "tag", _tag),
    Shape("policy", "policy_meta", "policy", _policy, {"version": ("policy_version_info", "version")}),
    Shape("user", "user_meta", "user", _principal("user")),
    Shape("group", "group_meta", "group", _principal("group")),
    Shape("role", "role_meta", "role", _role),
    Shape("job_template", "job_template_meta", "job_template", _job_template),
    Shape("job", "job_run_meta", "job_run", _job),
)
BELOW_SCHEMA: Final = (
    Shape(
        *("table", "table_meta", "table", _table),
        {"version": ("table_version_info", "version"), "column": ("table_column_version_info", "table_version")},
    ),
    Shape("view", "view_meta", "view", _view, {"version": ("view_version_info", "version")}),
    Shape("fileset", "fileset_meta", "fileset", _fileset, {"version": ("fileset_version_info", "version")}),
    Shape("topic", "topic_meta", "topic", _simple("topic", "comment")),
    Shape(
        *("model", "model_meta", "model", _model),
        {"version": ("model_version_info", "version"), "alias": ("model_version_alias_rel", "model_version")},
    ),
    Shape(
        *("function", "function_meta", "function", _function, {"version": ("function_version_info", "version")}),
        current="function_current_version",
    ),
)
