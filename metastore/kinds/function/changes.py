"""Changes of a function's definitions and implementations.

A definition is identified by the types of its parameters, ``("int", "string")``, or by the parameters themselves; an
implementation by its definition, language and runtime. Changes of different definitions or implementations merge in
either order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from metastore.arguments import shown
from metastore.columns.column import Column
from metastore.errors import InvalidArgument
from metastore.kinds.change import Doc, EntityChange, not_found
from metastore.kinds.function.document import (
    Definition,
    Implementation,
    add_definition,
    add_implementation,
    clean_signature,
    decode_definition,
    decode_implementation,
    definition_doc,
    implementation_doc,
    signature_of,
)
from metastore.names import format_path

__all__ = ["AddDefinition", "AddImplementation", "DropDefinition", "DropImplementation", "SetImplementation"]

Names = tuple[str, ...]
Parameters = Sequence[str | Column]


@dataclass(frozen=True)
class AddDefinition(EntityChange):
    """Add a definition. Raises EntityAlreadyExists if a call would fit two definitions."""

    definition: Definition
    since: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if not isinstance(self.definition, Definition):
            raise InvalidArgument(f"a definition is Definition(…), not {shown(self.definition)}")

    def apply(self, doc: Doc, path: Names) -> None:
        add_definition(doc, self.definition, format_path(path))

    def to_json(self) -> dict[str, Any]:
        return {"definition": definition_doc(self.definition)}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> EntityChange:
        return cls(decode_definition(fields["definition"]))


@dataclass(frozen=True)
class DropDefinition(EntityChange):
    """Drop the definition with parameters of these types. Raises EntityNotFound."""

    parameters: Parameters
    since: ClassVar[int] = 2

    def __post_init__(self) -> None:
        vars(self).update(parameters=clean_signature(self.parameters))

    def apply(self, doc: Doc, path: Names) -> None:
        doc["definitions"].remove(_definition(doc, path, self.parameters))


@dataclass(frozen=True)
class _ForDefinition(EntityChange, tag="an implementation"):
    """A change that carries the implementation that it adds or sets."""

    parameters: Parameters
    implementation: Implementation
    since: ClassVar[int] = 2

    def __post_init__(self) -> None:
        vars(self).update(parameters=clean_signature(self.parameters))
        if not isinstance(self.implementation, Implementation):
            raise InvalidArgument(f"an implementation is Implementation(…), not {shown(self.implementation)}")

    def to_json(self) -> dict[str, Any]:
        return {"parameters": list(self.parameters), "implementation": implementation_doc(self.implementation)}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> EntityChange:
        return cls(tuple(fields["parameters"]), decode_implementation(fields["implementation"]))


@dataclass(frozen=True)
class AddImplementation(_ForDefinition):
    """Add an implementation to a definition. Raises EntityAlreadyExists, EntityNotFound."""

    def apply(self, doc: Doc, path: Names) -> None:
        definition = _definition(doc, path, self.parameters)
        add_implementation(definition, self.implementation, _shown(path, self.parameters))


@dataclass(frozen=True)
class SetImplementation(_ForDefinition):
    """Replace the implementation of the same language and runtime. Raises EntityNotFound."""

    def apply(self, doc: Doc, path: Names) -> None:
        definition = _definition(doc, path, self.parameters)
        at = _implementation(definition, path, self.implementation.language, self.implementation.runtime)
        definition["implementations"][at] = implementation_doc(self.implementation)


@dataclass(frozen=True)
class DropImplementation(EntityChange):
    """Drop the implementation in this language, for this runtime. Raises EntityNotFound."""

    parameters: Parameters
    language: str
    runtime: str | None = field(default=None, kw_only=True)
    since: ClassVar[int] = 2

    def __post_init__(self) -> None:
        vars(self).update(parameters=clean_signature(self.parameters))
        Implementation(self.language, "-", runtime=self.runtime)  # raises for a wrong language

    def apply(self, doc: Doc, path: Names) -> None:
        definition = _definition(doc, path, self.parameters)
        runtime = self.runtime and self.runtime.lower()
        del definition["implementations"][_implementation(definition, path, self.language.lower(), runtime)]


def _definition(doc: Doc, path: Names, parameters: Parameters) -> Doc:
    for definition in doc["definitions"]:
        if signature_of(definition) == tuple(parameters):
            same: Doc = definition
            return same
    raise not_found(path, "definition", _types(parameters))


def _implementation(definition: Doc, path: Names, language: str, runtime: str | None) -> int:
    for at, one in enumerate(definition["implementations"]):
        if (one["language"], one.get("runtime")) == (language, runtime):
            return at
    raise not_found(path, "implementation", f"{language} for {runtime or 'any runtime'}")


def _types(parameters: Parameters) -> str:
    return f"({', '.join(map(str, parameters))})"


def _shown(path: Names, parameters: Parameters) -> str:
    return f"{format_path(path)}{_types(parameters)}"
