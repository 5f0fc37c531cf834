"""Create, list, load, alter and drop a resource; the same for each kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from metastore.errors import EntityNotFound
from metastore.kinds.change import EntityChange
from metastore.serve.gravitino import reading
from metastore.serve.gravitino.changes import IfThere, Rename, Step, clean_properties, step
from metastore.serve.gravitino.errors import InUse
from metastore.serve.gravitino.resources import Resource
from metastore.serve.gravitino.shapes import identifier
from metastore.serve.web import Answer, Call

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["alter", "create", "drop", "load", "names_of", "page", "set_in_use"]


class _Create(BaseModel):
    model_config = ConfigDict(strict=True)
    name: str = Field(min_length=1)
    comment: str | None = None
    properties: dict[str, str] | None = None


class _InUse(BaseModel):
    model_config = ConfigDict(strict=True)
    inUse: bool  # noqa: N815  (the API's own name)


_CREATE: Final = TypeAdapter(_Create)
_IN_USE: Final = TypeAdapter(_InUse)


def names_of(call: Call, resource: Resource) -> tuple[str, ...]:
    """Return the names in the path; for a list or a create, those of the place."""
    return tuple(call.names[word] for word in resource.words if word in call.names)


def page(store: Store, resource: Resource, call: Call) -> Answer:
    """List a resource: identifiers or names, or all of it with ``details=true``."""
    manager, above = store.manager(resource.kind), names_of(call, resource)
    if resource.listed == "full" or reading.flag(call, "details"):
        found = manager.list(above) if above else store.metalakes.list()
        return _done({resource.many: [resource.shape(one) for one in found]})
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
    made = store.manager(resource.kind).create(names, comment=wanted.comment, properties=properties, **fields)
    return _done({resource.kind: resource.shape(made)})


def load(store: Store, resource: Resource, call: Call) -> Answer:
    """Return an entity."""
    return _done({resource.kind: resource.shape(store.manager(resource.kind).load(names_of(call, resource)))})


def alter(store: Store, resource: Resource, call: Call) -> Answer:
    """Apply all updates of a request in one commit, or none."""
    steps = [step(update, resource.updates) for update in reading.updates(call)]
    names = names_of(call, resource)
    changes = [one for one in steps if isinstance(one, EntityChange)]
    if len(changes) == len(steps):
        altered = store.manager(resource.kind).alter(names, *changes)
    else:
        altered = store.run(lambda tx: _apply(tx.manager(resource.kind), names, steps))
    return _done({resource.kind: resource.shape(altered)})


def _apply(manager: Any, names: tuple[str, ...], steps: Sequence[Step]) -> Any:
    entity = manager.load(names)
    for one in steps:
        if isinstance(one, EntityChange):
            entity = manager.alter(names, one)
        elif isinstance(one, Rename):
            above = names[:-1] if one.schema is None else (*names[:-2], one.schema)
            entity, names = manager.rename(names, (*above, one.name)), (*above, one.name)
        elif isinstance(one, IfThere):
            try:
                entity = manager.alter(names, one.change)
            except EntityNotFound:
                continue
    return entity


def drop(store: Store, resource: Resource, call: Call) -> Answer:
    """Drop an entity; false: there was none. ``force`` and ``cascade`` drop what is below it, too."""
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
    """Drop a metalake or catalog, unless it is enabled and nothing forces it."""
    try:
        entity = manager.load(names)
    except EntityNotFound:
        return False
    if entity.in_use and not force:
        raise InUse(kind, entity.path)
    return bool(manager.drop(names, cascade=force))


def set_in_use(store: Store, resource: Resource, call: Call) -> Answer:
    """Enable or disable a metalake or catalog."""
    wanted = reading.body(call, _IN_USE)
    manager = store.metalakes if resource.kind == "metalake" else store.catalogs
    names = names_of(call, resource)
    manager.enable(names) if wanted.inUse else manager.disable(names)
    return _done({})


def _done(found: dict[str, Any]) -> Answer:
    return Answer({"code": 0, **found})
