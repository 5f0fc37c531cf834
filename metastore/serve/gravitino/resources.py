"""Each kind of entity as a resource of the API: its path, its JSON, and the fields of its requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from metastore.columns.column import Column
from metastore.kinds.change import SetComment
from metastore.kinds.policy import SetContent, SetSupports
from metastore.kinds.view.document import SQL
from metastore.serve.gravitino import access, filesets, functions, shapes
from metastore.serve.gravitino.changes import COMMON, DESCRIBED, NAMED, TABLE, Readers, Rename, Replace, Step
from metastore.serve.gravitino.expressions import (
    default_text,
    distribution_text,
    index_of,
    order_text,
    partitioning_text,
)
from metastore.serve.gravitino.reading import mapping, optional, text
from metastore.serve.gravitino.types import type_text
from metastore.serve.web import BadRequest

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["RESOURCES", "Resource", "columns_of", "items"]

Body = Mapping[str, Any]
Names = tuple[str, ...]


def _none(_store: Store, _names: Names, _body: Body) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Resource:
    """One kind: ``many`` is its word in a path, ``above`` the kinds that a path names before it.

    ``related`` shows an entity with its relations; ``with_it`` creates the relations in the body of a create.
    """

    kind: str
    many: str
    above: tuple[str, ...]
    shape: Callable[[Any], dict[str, Any]]
    updates: Readers
    fields: Callable[[Store, Names, Body], dict[str, Any]] = _none
    listed: Literal["full", "identifiers", "names"] = "identifiers"
    dropped: str = "dropped"
    strict_names: bool = True
    related: Callable[[Any, Any], dict[str, Any]] | None = None
    with_it: Callable[[Any, Names, Body], None] | None = None

    def shown(self, store: Any, entity: Any) -> dict[str, Any]:
        """Return an entity as the API shows it. Some kinds are shown with their relations, from the store."""
        return self.shape(entity) if self.related is None else self.related(store, entity)

    @property
    def words(self) -> tuple[str, ...]:
        """Return the parameters of its path."""
        return (*self.above, self.kind)


def items(body: Body, key: str) -> list[Any]:
    """Return a field that is a list; an empty list if it is missing or null."""
    return optional(body, key, list) or []


def columns_of(body: Body) -> list[Column]:
    """Return the columns of a table or view."""
    return [_column(mapping(one, "a column")) for one in items(body, "columns")]


def _column(one: Body) -> Column:
    return Column(
        text(one, "name"),
        type_text(one.get("type")),
        nullable=bool(optional(one, "nullable", bool, True)),
        default=default_text(one.get("defaultValue")),
        comment=optional(one, "comment", str),
        auto_increment=bool(optional(one, "autoIncrement", bool, False)),
    )


_PROVIDERS: Final = {
    "relational": [
        *("hive", "glue", "metastore"),
        *(f"lakehouse-{name}" for name in ("iceberg", "paimon", "hudi", "generic")),
        *(
            f"jdbc-{name}"
            for name in ("mysql", "postgresql", "doris", "oceanbase", "starrocks", "clickhouse", "hologres")
        ),
    ],
    "fileset": ["fileset", "hadoop"],
    "messaging": ["kafka"],
    "model": ["model"],
}


def _catalog(_store: Store, _names: Names, body: Body) -> dict[str, Any]:
    kind = text(body, "type").lower()
    if kind not in _PROVIDERS:
        raise BadRequest(f"a catalog's type is one of {', '.join(_PROVIDERS)}, not {kind[:40]!r}")
    provider = optional(body, "provider", str) or (kind if kind in ("fileset", "model") else None)
    if provider is None:
        raise BadRequest(f"a {kind} catalog needs a provider")
    if provider not in _PROVIDERS[kind]:
        raise BadRequest(f"No catalog provider found for: {provider[:80]}; there are: {', '.join(_PROVIDERS[kind])}")
    return {"type": kind, "provider": provider}


def _table(_store: Store, _names: Names, body: Body) -> dict[str, Any]:
    return {
        "columns": columns_of(body),
        "partitioning": [partitioning_text(one) for one in items(body, "partitioning")],
        "distribution": distribution_text(body.get("distribution")),
        "sort_orders": [order_text(one) for one in items(body, "sortOrders")],
        "indexes": [index_of(one) for one in items(body, "indexes")],
    }


def _view(_store: Any, _names: Names, body: Body) -> dict[str, Any]:
    texts = [mapping(one, "a representation") for one in items(body, "representations")]
    return {
        "columns": columns_of(body),
        "representations": [SQL(text(one, "dialect"), text(one, "sql")) for one in texts],
        "default_catalog": optional(body, "defaultCatalog", str),
        "default_schema": optional(body, "defaultSchema", str),
    }


def _replace_view(update: Body) -> Step:
    return Replace(optional(update, "comment", str), _view(None, (), update))


def _policy(_store: Store, _names: Names, body: Body) -> dict[str, Any]:
    content, supports = _content(body, "content")
    enabled = bool(optional(body, "enabled", bool, True))
    return {"type": text(body, "policyType"), "content": content, "supports": supports, "enabled": enabled}


def _content(body: Body, key: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a policy's content, and the kinds that it may be attached to."""
    content = dict(mapping(body.get(key), key))
    kinds = content.pop("supportedObjectTypes", None) or []
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        raise BadRequest("supportedObjectTypes must be a list of types of objects")
    return content, tuple(kind.lower() for kind in kinds)


def _set_content(update: Body) -> list[Step]:
    content, supports = _content(update, "newContent")
    return [SetContent(content), SetSupports(supports)]


_POLICY: Final[Readers] = {
    "rename": lambda update: Rename(text(update, "newName")),
    "updateComment": lambda update: SetComment(optional(update, "newComment", str)),
    "updateContent": _set_content,
}
_METALAKE: Final = ("metalake",)
_CATALOG: Final = ("metalake", "catalog")
_SCHEMA: Final = ("metalake", "catalog", "schema")
RESOURCES: Final = (
    Resource("metalake", "metalakes", (), shapes.metalake, NAMED, listed="full"),
    Resource("catalog", "catalogs", _METALAKE, shapes.catalog, NAMED, _catalog),
    Resource("schema", "schemas", _CATALOG, shapes.schema, COMMON),
    Resource("table", "tables", _SCHEMA, shapes.table, TABLE, _table),
    Resource("fileset", "filesets", _SCHEMA, shapes.fileset, NAMED, filesets.fields),
    Resource("topic", "topics", _SCHEMA, shapes.named, DESCRIBED),
    Resource("model", "models", _SCHEMA, shapes.model, NAMED),
    Resource("function", "functions", _SCHEMA, functions.shape, functions.UPDATES, functions.fields),
    Resource("view", "views", _SCHEMA, shapes.view, {**NAMED, "replaceView": _replace_view}, _view),
    Resource("tag", "tags", _METALAKE, shapes.named, NAMED, listed="names"),
    Resource("policy", "policies", _METALAKE, shapes.policy, _POLICY, _policy, listed="names"),
    Resource(
        *("user", "users", _METALAKE, shapes.named, {}),
        listed="names",
        dropped="removed",
        strict_names=False,
        related=access.holder,
    ),
    Resource(
        *("group", "groups", _METALAKE, shapes.named, {}),
        listed="names",
        dropped="removed",
        strict_names=False,
        related=access.holder,
    ),
    Resource(
        *("role", "roles", _METALAKE, shapes.named, {}),
        listed="names",
        related=access.role,
        with_it=access.grants_of_body,
    ),
)
