"""The versions of a model. Gravitino counts them from 0, the store from 1: only this file knows that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from metastore.errors import EntityNotFound
from metastore.kinds.change import EntityChange
from metastore.kinds.model.changes import RemoveUri, SetUri
from metastore.kinds.model.version import ModelVersion
from metastore.names import format_path
from metastore.secrets.names import hiding_secrets
from metastore.serve.gravitino import reading
from metastore.serve.gravitino.changes import DESCRIBED
from metastore.serve.gravitino.errors import Refused
from metastore.serve.gravitino.shapes import audit
from metastore.serve.masks import without_masks
from metastore.serve.web import Answer, BadRequest, Call

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["ENDPOINTS"]


class _Link(BaseModel):
    model_config = ConfigDict(strict=True)
    uri: str | None = None
    uris: dict[str, str] = Field(default_factory=dict)
    aliases: list[str] | None = None
    comment: str | None = None
    properties: dict[str, str] | None = None


_LINK: Final = TypeAdapter(_Link)
_UNKNOWN: Final = "unknown"
"""Gravitino's name for the uri of a version that has only one, without a name."""


def _shape(version: ModelVersion) -> dict[str, Any]:
    return {
        "version": version.number - 1,
        "comment": version.comment,
        "aliases": list(version.aliases),
        "uris": dict(version.uris),
        "uri": version.uris.get(_UNKNOWN),
        "properties": hiding_secrets(version.properties),
        "audit": audit(version),
    }


def _model(call: Call) -> tuple[str, ...]:
    return tuple(call.names[word] for word in ("metalake", "catalog", "schema", "model"))


def _which(call: Call) -> int | str:
    """Return the number of the store, or the alias, that the path names."""
    if "alias" in call.names:
        return call.names["alias"]
    text = call.names["version"]
    if not text.isdecimal() or len(text) > 9:
        raise BadRequest(f"a version is a number from 0 to 999999999, not {text[:20]!r}")
    return int(text) + 1


def _page(store: Store, call: Call) -> Answer:
    versions = list(store.models.versions(_model(call)))
    if reading.flag(call, "details"):
        return Answer({"code": 0, "infos": [_shape(one) for one in versions]})
    return Answer({"code": 0, "versions": [one.number - 1 for one in versions]})


def _link(store: Store, call: Call) -> Answer:
    wanted, model = reading.body(call, _LINK), _model(call)
    uris = {**({_UNKNOWN: wanted.uri} if wanted.uri else {}), **wanted.uris}
    if not uris:
        raise BadRequest("a version needs a uri, or uris by their names")

    def add(tx: Any) -> None:
        for alias in wanted.aliases or ():
            _free(tx, model, alias)
        properties = without_masks(wanted.properties)
        tx.models.add_version(
            model, uris=uris, aliases=wanted.aliases or (), comment=wanted.comment, properties=properties
        )

    store.run(add)
    return Answer({"code": 0})


def _free(tx: Any, model: tuple[str, ...], alias: str, number: int | None = None) -> None:
    """Refuse an alias that another version has: Gravitino's aliases do not move by themselves."""
    tx.models.load(model)
    try:
        there = tx.models.load_version(model, alias)
    except EntityNotFound:
        return
    if there.number != number:
        message = f"the alias {alias} is that of version {there.number - 1}; remove it there first"
        raise Refused(1004, 409, "ModelVersionAliasesAlreadyExistException", message)


def _version(of: Any, call: Call) -> ModelVersion:
    """Return the version that a request names. The error counts versions as Gravitino does."""
    model, which = _model(call), _which(call)
    try:
        version: ModelVersion = of.models.load_version(model, which)
    except EntityNotFound:
        said = f"alias {which!r}" if isinstance(which, str) else f"version {which - 1}"
        raise Refused(1003, 404, "NoSuchModelVersionException", f"{format_path(model)} has no {said}") from None
    return version


def _load(store: Store, call: Call) -> Answer:
    return Answer({"code": 0, "modelVersion": _shape(_version(store, call))})


def _drop(store: Store, call: Call) -> Answer:
    return Answer({"code": 0, "dropped": store.models.drop_version(_model(call), _which(call))})


def _uri(store: Store, call: Call) -> Answer:
    version = _version(store, call)
    name = call.query.get("uriName") or version.properties.get("default-uri-name")
    if name is None:
        name = next(iter(version.uris)) if len(version.uris) == 1 else _UNKNOWN
    if name not in version.uris:
        message = f"version {version.number - 1} has no uri {name}; it has {', '.join(version.uris)}"
        raise Refused(1003, 404, "NoSuchModelVersionURINameException", message)
    return Answer({"code": 0, "uri": version.uris[name]})


def _set_uri(key: str) -> Callable[[Mapping[str, Any]], EntityChange]:
    return lambda update: SetUri(reading.optional(update, "uriName", str) or _UNKNOWN, reading.text(update, key))


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    **DESCRIBED,
    "updateUri": _set_uri("newUri"),
    "addUri": _set_uri("uri"),
    "removeUri": lambda update: RemoveUri(reading.optional(update, "uriName", str) or _UNKNOWN),
}


def _alter(store: Store, call: Call) -> Answer:
    updates, model = reading.updates(call), _model(call)
    unknown = [one["@type"] for one in updates if one["@type"] not in (*_READERS, "updateAliases")]
    if unknown:
        raise BadRequest(f"there is no update {unknown[0][:40]!r} of a model's version")

    def apply(tx: Any) -> ModelVersion:
        number = _version(tx, call).number
        for one in updates:
            if one["@type"] == "updateAliases":
                _move_aliases(tx, model, number, one)
            else:
                tx.models.alter_version(model, number, _READERS[one["@type"]](one))
        return tx.models.load_version(model, number)  # type: ignore[no-any-return]

    return Answer({"code": 0, "modelVersion": _shape(store.run(apply))})


def _move_aliases(tx: Any, model: tuple[str, ...], number: int, update: Mapping[str, Any]) -> None:
    for alias in reading.optional(update, "aliasesToRemove", list) or []:
        _free(tx, model, alias, number)
        tx.models.drop_alias(model, alias)
    for alias in reading.optional(update, "aliasesToAdd", list) or []:
        _free(tx, model, alias, number)
        tx.models.set_alias(model, alias, number)


_MODEL: Final = "/metalakes/{metalake}/catalogs/{catalog}/schemas/{schema}/models/{model}"
_ONE: Final = (f"{_MODEL}/versions/{{version}}", f"{_MODEL}/aliases/{{alias}}")
ENDPOINTS: Final = (
    ("GET", f"{_MODEL}/versions", "model", _page),
    ("POST", f"{_MODEL}/versions", "model", _link),
    *(("GET", path, "model", _load) for path in _ONE),
    *(("PUT", path, "model", _alter) for path in _ONE),
    *(("DELETE", path, "model", _drop) for path in _ONE),
    *(("GET", f"{path}/uri", "model", _uri) for path in _ONE),
)
