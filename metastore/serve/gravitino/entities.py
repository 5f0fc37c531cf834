"""Create, list, load, alter and drop a resource, in the same way for each kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from metastore.errors import EntityNotFound
from metastore.kinds.change import EntityChange
from metastore.names import parse_path
from metastore.serve.gravitino import reading
from metastore.serve.gravitino.changes import Decide, Rename, Replace, Step, clean_properties, steps
from metastore.serve.gravitino.errors import InUse, Refused
from metastore.serve.gravitino.resources import Resource
from metastore.serve.gravitino.shapes import IN_USE, identifier
from metastore.serve.web import Answer, Call

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["alter", "apply", "create", "drop", "load", "names_of", "page", "set_in_use"]


class _Create(BaseModel):
    model_config = ConfigDict(strict=True)
    name: str = Field(min_length=1)
    comment: str | None = None
    properties: dict[str, str] | None = None


class _InUse(BaseModel):
    model_config = ConfigDict(strict=True)
    inUse: bool  # noqa: N815  (the API's own name)


class _Enable(BaseModel):
    model_config = ConfigDict(strict=True)
    enable: bool


_CREATE: Final = TypeAdapter(_Create)
_IN_USE: Final = TypeAdapter(_InUse)
_ENABLE: Final = TypeAdapter(_Enable)


def names_of(call: Call, resource: Resource) -> tuple[str, ...]:
    """Return the names in the path; for a list or a create, those of the parent."""
    return tuple(call.names[word] for word in resource.words if word in call.names)


def page(store: Store, resource: Resource, call: Call) -> Answer:
    """List a resource: identifiers or names, or whole entities with ``details=true``."""
    manager, above = store.manager(resource.kind), names_of(call, resource)
    if resource.listed == "full" or reading.flag(call, "details"):
        entities = manager.list(above) if above else store.metalakes.list()
        return _done({resource.many: [resource.shown(store, one) for one in entities]})
    names = list(manager.names(above))
    if resource.listed == "names":
        return _done({"names": names})
    return _done({"identifiers": [identifier(above, name) for name in names]})


def create(store: Store, resource: Resource, call: Call) -> Answer:
    """Create an entity."""
    wanted = reading.body(call, _CREATE)
    name = reading.new_name(wanted.name) if resource.strict_names else wanted.name
    names = (*names_of(call, resource), name)
    properties = clean_properties(wanted.properties)
    fields = resource.fields(store, names, call.body)
    given = {"comment": wanted.comment, "properties": properties, **fields}
    if resource.with_it is None:
        made = store.manager(resource.kind).create(names, **given)
    else:
        made = store.run(lambda tx: _create_with(tx, resource, names, given, call.body))
    shown = resource.shown(store, made)
    if resource.kind == "metalake":  # only the answer to a create does not show whether the entity is in use
        del shown["properties"][IN_USE]
    return _done({resource.kind: shown})


def _create_with(tx: Any, resource: Resource, names: tuple[str, ...], given: dict[str, Any], body: Any) -> Any:
    """Create an entity and the relations in its body, in one commit."""
    made = tx.manager(resource.kind).create(names, **given)
    if resource.with_it is not None:
        resource.with_it(tx, names, body)
    return made


def load(store: Store, resource: Resource, call: Call) -> Answer:
    """Return an entity."""
    names = names_of(call, resource)
    try:
        entity = store.manager(resource.kind).load(names)
    except EntityNotFound as error:
        if resource.kind != "model" or len(parse_path(error.missing or error.path)) < len(names) - 1:
            raise
        # for a model, a missing schema gives this error too
        raise Refused(1003, 404, "NoSuchModelException", str(error)) from None
    return _done({resource.kind: resource.shown(store, entity)})


def alter(store: Store, resource: Resource, call: Call) -> Answer:
    """Apply all updates of a request in one commit, or none."""
    wanted = [one for update in reading.updates(call) for one in steps(update, resource.updates)]
    names = names_of(call, resource)
    changes = [one for one in wanted if isinstance(one, EntityChange)]
    if len(changes) == len(wanted):
        altered = store.manager(resource.kind).alter(names, *changes)
    else:
        altered = store.run(lambda tx: apply(tx.manager(resource.kind), names, wanted))
    return _done({resource.kind: resource.shown(store, altered)})


def apply(manager: Any, names: tuple[str, ...], wanted: Sequence[Step]) -> Any:
    """Apply the steps one after the other, in a transaction; return the entity."""
    entity = manager.load(names)
    for one in wanted:
        if isinstance(one, EntityChange):
            entity = manager.alter(names, one)
        elif isinstance(one, Rename):
            above = names[:-1] if one.schema is None else (*names[:-2], one.schema)
            entity, names = manager.rename(names, (*above, one.name)), (*above, one.name)
        elif isinstance(one, Replace):
            properties = entity.properties
            entity = manager.create(
                names, if_exists="replace", comment=one.comment, properties=properties, **one.fields
            )
        elif isinstance(one, Decide):
            entity = manager.alter(names, *one.changes(entity))
        else:
            try:
                entity = manager.alter(names, one.change)
            except EntityNotFound:
                continue
    return entity


def drop(store: Store, resource: Resource, call: Call) -> Answer:
    """Drop an entity; the answer is false if there was none.

    ``force`` and ``cascade`` drop everything below it, too.
    """
    names = names_of(call, resource)
    cascade = reading.flag(call, "force") or reading.flag(call, "cascade")
    if resource.kind in ("metalake", "catalog"):
        dropped = store.run(lambda tx: _drop_disabled(tx.manager(resource.kind), resource.kind, names, cascade))
    elif resource.kind == "table" and reading.flag(call, "purge"):
        dropped = store.tables.purge(names)
    else:
        dropped = store.manager(resource.kind).drop(names, cascade=cascade)
    return _done({resource.dropped: dropped})


def _drop_disabled(manager: Any, kind: str, names: tuple[str, ...], force: bool) -> bool:
    """Drop a metalake or catalog, unless it is enabled and ``force`` is false."""
    try:
        entity = manager.load(names)
    except EntityNotFound:
        return False
    if entity.in_use and not force:
        raise InUse(kind, entity.path)
    return bool(manager.drop(names, cascade=force))


def set_in_use(store: Store, resource: Resource, call: Call) -> Answer:
    """Enable or disable a metalake, a catalog or a policy."""
    enabled = reading.body(call, _ENABLE).enable if resource.kind == "policy" else reading.body(call, _IN_USE).inUse
    manager: Any = store.manager(resource.kind)
    names = names_of(call, resource)
    manager.enable(names) if enabled else manager.disable(names)
    return _done({})


def _done(body: dict[str, Any]) -> Answer:
    return Answer({"code": 0, **body})
