"""Functions: definitions and implementations in the API's JSON and in the store's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from metastore.columns.column import Column
from metastore.kinds.change import EntityChange, SetComment
from metastore.kinds.function import changes
from metastore.kinds.function.document import Definition, Implementation
from metastore.kinds.function.kind import Function
from metastore.secrets.names import hiding_secrets
from metastore.serve.gravitino.changes import Decide, Readers, Step
from metastore.serve.gravitino.expressions import default_json, default_text
from metastore.serve.gravitino.reading import mapping, optional, text
from metastore.serve.gravitino.shapes import named
from metastore.serve.gravitino.types import type_json, type_text
from metastore.serve.masks import without_masks
from metastore.serve.web import BadRequest

__all__ = ["UPDATES", "definition_json", "definition_of", "fields", "shape"]

_BODY: Final = {"sql": "sql", "java": "className", "python": "codeBlock"}
"""The field that has the body of an implementation, by its language."""


def fields(_store: Any, _names: tuple[str, ...], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a function that a request registers."""
    definitions = _items(body, "definitions")
    if not definitions:
        raise BadRequest("a function needs one definition or more")
    return {
        "type": text(body, "functionType").lower(),
        "deterministic": bool(optional(body, "deterministic", bool, False)),
        "definitions": [definition_of(one) for one in definitions],
    }


def shape(entity: Function) -> dict[str, Any]:
    """Return a function."""
    body = named(entity)
    del body["properties"]
    return {
        **body,
        "functionType": entity.type.upper(),
        "deterministic": entity.deterministic,
        "definitions": [definition_json(one) for one in entity.definitions],
    }


def definition_of(value: Any) -> Definition:
    """Return a definition of a request, or of Gravitino's own database."""
    one = mapping(value, "a definition")
    columns = [_parameter(column) for column in _items(one, "returnColumns")]
    returns = tuple(columns) if columns else type_text(one.get("returnType"))
    implementations = tuple([_implementation(each) for each in _items(one, "impls")])
    return Definition(_parameters(one), returns, implementations)


def _items(body: Mapping[str, Any], key: str) -> list[Any]:
    return optional(body, key, list) or []


def _parameters(one: Mapping[str, Any]) -> tuple[Column, ...]:
    return tuple([_parameter(each) for each in _items(one, "parameters")])


def _parameter(value: Any) -> Column:
    one = mapping(value, "a parameter")
    default = default_text(one.get("defaultValue"))
    return Column(
        text(one, "name"), type_text(one.get("dataType")), default=default, comment=optional(one, "comment", str)
    )


def _implementation(value: Any) -> Implementation:
    one = mapping(value, "an implementation")
    language = text(one, "language").lower()
    if language not in _BODY:
        raise BadRequest(f"a language is one of SQL, JAVA, PYTHON, not {language[:40]!r}")
    handler = optional(one, "handler", str) if language == "python" else None
    # a Python function may have a handler without a body: its code is in files
    body = optional(one, _BODY[language], str) or handler
    if not body:
        raise BadRequest(f"an implementation in {language} needs {_BODY[language]}")
    places = mapping(one.get("resources") or {}, "resources")
    resources = {key: tuple(_items(places, key)) for key in ("jars", "files", "archives")}
    properties = without_masks(optional(one, "properties", dict))
    return Implementation(
        language, body, runtime=text(one, "runtime"), handler=handler, properties=properties, **resources
    )


def definition_json(one: Definition) -> dict[str, Any]:
    """Return a definition as JSON."""
    body: dict[str, Any] = {"parameters": [_parameter_json(each) for each in one.parameters]}
    if isinstance(one.returns, str):
        body["returnType"] = type_json(Column("returns", one.returns))
    else:
        body["returnColumns"] = [_parameter_json(each) for each in one.returns]
    return {**body, "impls": [_implementation_json(each) for each in one.implementations]}


def _parameter_json(one: Column) -> dict[str, Any]:
    body = {"name": one.name, "dataType": type_json(one), "comment": one.comment}
    default = default_json(one.default)
    return body if default is None else {**body, "defaultValue": default}


def _implementation_json(one: Implementation) -> dict[str, Any]:
    body: dict[str, Any] = {"language": one.language.upper(), "runtime": (one.runtime or "spark").upper()}
    if one.language == "python":
        body["handler"] = one.handler
    if one.body != one.handler:
        body[_BODY[one.language]] = one.body
    resources = {key: list(getattr(one, key)) for key in ("jars", "files", "archives")}
    return {**body, "resources": resources, "properties": hiding_secrets(one.properties)}


def _update_implementation(update: Mapping[str, Any]) -> Step:
    """Replace the implementation for a runtime; the new one may have another language."""
    new = _implementation(update.get("implementation"))
    parameters = _parameters(update)

    def decide(entity: Any) -> list[EntityChange]:
        old = _for_runtime(entity, parameters, update)
        if (old.language, old.runtime) == (new.language, new.runtime):
            return [changes.SetImplementation(parameters, new)]
        gone = changes.DropImplementation(parameters, old.language, runtime=old.runtime)
        return [gone, changes.AddImplementation(parameters, new)]

    return Decide(decide)


def _remove_implementation(update: Mapping[str, Any]) -> Step:
    parameters = _parameters(update)

    def decide(entity: Any) -> list[EntityChange]:
        old = _for_runtime(entity, parameters, update)
        return [changes.DropImplementation(parameters, old.language, runtime=old.runtime)]

    return Decide(decide)


def _for_runtime(entity: Function, parameters: tuple[Column, ...], update: Mapping[str, Any]) -> Implementation:
    """Return the implementation that Gravitino identifies by parameters and a runtime only."""
    runtime, types = text(update, "runtime").lower(), [one.type for one in parameters]
    for definition in entity.definitions:
        if [one.type for one in definition.parameters] == types:
            for one in definition.implementations:
                if one.runtime == runtime:
                    return one
    raise BadRequest(f"the function has no implementation for {runtime[:40]} with these parameters")


UPDATES: Final[Readers] = {
    "updateComment": lambda update: SetComment(optional(update, "newComment", str)),
    "addDefinition": lambda update: changes.AddDefinition(definition_of(update.get("definition"))),
    "removeDefinition": lambda update: changes.DropDefinition(_parameters(update)),
    "addImpl": lambda update: changes.AddImplementation(
        _parameters(update), _implementation(update.get("implementation"))
    ),
    "updateImpl": _update_implementation,
    "removeImpl": _remove_implementation,
}
