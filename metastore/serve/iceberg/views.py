"""Answer Iceberg's requests about views."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, Field, TypeAdapter
from pyiceberg.exceptions import NoSuchViewError
from pyiceberg.schema import Schema
from pyiceberg.typedef import Identifier
from pyiceberg.view import View
from pyiceberg.view.metadata import ViewVersion

from metastore.pyiceberg.catalog import MetastoreCatalog
from metastore.pyiceberg.naming import shown
from metastore.pyiceberg.view_updates import ViewRequirement, ViewUpdate
from metastore.serve.iceberg import reading
from metastore.serve.web import Answer, Call

__all__ = ["create", "drop", "exists", "load", "page", "register", "rename", "replace"]


class _Create(BaseModel):
    name: str = Field(min_length=1)
    view_schema: Schema = Field(alias="schema")
    view_version: ViewVersion = Field(alias="view-version")
    location: str | None = None
    properties: dict[str, str] = Field(default_factory=dict)


class _Replace(BaseModel):
    requirements: tuple[ViewRequirement, ...] = ()
    updates: tuple[ViewUpdate, ...]


_CREATE: Final = TypeAdapter(_Create)
_REPLACE: Final = TypeAdapter(_Replace)


def page(catalog: MetastoreCatalog, call: Call) -> Answer:
    """List the views of a namespace; with ``pageSize``, one page of them."""
    names = reading.namespace(call.names["namespace"])
    views, following = catalog.views_page(names, reading.page_size(call), reading.token(call))
    identifiers = [{"namespace": list(names), "name": name} for name in views]
    return Answer(reading.with_token({"identifiers": identifiers}, following))


def create(catalog: MetastoreCatalog, call: Call) -> Answer:
    """Create a view."""
    wanted = reading.body(call, _CREATE)
    names = (*reading.namespace(call.names["namespace"]), wanted.name)
    catalog.create_view(names, wanted.view_schema, wanted.view_version, wanted.location, wanted.properties)
    return _answer(catalog, names)


def register(catalog: MetastoreCatalog, call: Call) -> Answer:
    """Create a view from its metadata file."""
    wanted = reading.body(call, reading.REGISTER)
    names = (*reading.namespace(call.names["namespace"]), wanted.name)
    with reading.read_from(wanted.metadata_location):
        catalog.register_view(names, wanted.metadata_location)
    return _answer(catalog, names)


def load(catalog: MetastoreCatalog, call: Call) -> Answer:
    """Return a view's metadata."""
    return _answer(catalog, reading.view(call))


def replace(catalog: MetastoreCatalog, call: Call) -> Answer:
    """Give a view a new version, location or properties."""
    wanted = reading.body(call, _REPLACE)
    names = reading.view(call)
    return Answer(_loaded(*catalog.replace_view(names, wanted.requirements, wanted.updates)))


def exists(catalog: MetastoreCatalog, call: Call) -> Answer:
    """Say whether a view exists."""
    if not catalog.view_exists(names := reading.view(call)):
        raise NoSuchViewError(f"View does not exist: {shown(names)}")
    return Answer(status=204)


def drop(catalog: MetastoreCatalog, call: Call) -> Answer:
    """Drop a view."""
    catalog.drop_view(reading.view(call))
    return Answer(status=204)


def rename(catalog: MetastoreCatalog, call: Call) -> Answer:
    """Rename or move a view."""
    wanted = reading.body(call, reading.RENAME)
    catalog.rename_view(wanted.source.names, wanted.destination.names)
    return Answer(status=204)


def _answer(catalog: MetastoreCatalog, names: Identifier) -> Answer:
    view, location = catalog.load_view_file(names)
    return Answer(_loaded(view, location))


def _loaded(view: View, location: str) -> dict[str, Any]:
    metadata = view.metadata.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {"metadata-location": location, "metadata": metadata, "config": {}}
