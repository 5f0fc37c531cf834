"""The document of a function: its definitions, each with parameters, a return type and implementations.

    {"type": "scalar", "deterministic": false, "definitions": [
        {"parameters": [{"name", "type", …}, …], "returns": type | [{"name", "type", …}, …],
         "implementations": [{"language", "body", …}, …]}, …]}

The types of its parameters identify a definition, and no call may fit two definitions. A call may leave out parameters
with a default, from the end. A definition has one implementation for each language and runtime.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from metastore.arguments import boolean, items, shown
from metastore.columns.column import Column, check_columns, clean_optional
from metastore.columns.types import parse
from metastore.errors import EntityAlreadyExists, InvalidArgument
from metastore.names import clean_text
from metastore.plain import read_only

__all__ = [
    "Definition",
    "Implementation",
    "add_definition",
    "add_implementation",
    "clean_deterministic",
    "clean_signature",
    "clean_type",
    "decode_definitions",
    "signature_of",
    "stored_definitions",
]

Doc = dict[str, Any]
Signature = tuple[str, ...]
LANGUAGES: Final = ("sql", "java", "python")
FUNCTION_TYPES: Final = ("scalar", "aggregate", "table")


@dataclass(frozen=True)
class Implementation:
    """The code of a function, for one engine.

    ``language`` is sql, java or python; ``body`` the SQL text, the Java class's name, or the Python code. ``runtime``
    is its engine (spark, trino, …); None: any engine. ``handler`` names the function or class to call in Python code;
    ``jars``, ``files`` and ``archives`` are the places of the files that the code needs.
    """

    language: str
    body: str
    runtime: str | None = field(default=None, kw_only=True)
    handler: str | None = field(default=None, kw_only=True)
    jars: tuple[str, ...] = field(default=(), kw_only=True)
    files: tuple[str, ...] = field(default=(), kw_only=True)
    archives: tuple[str, ...] = field(default=(), kw_only=True)
    properties: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.language, str) or self.language.lower() not in LANGUAGES:
            raise InvalidArgument(f"a language is one of {', '.join(LANGUAGES)}, not {shown(self.language)}")
        if not clean_text(self.body, "the body of an implementation").strip():
            raise InvalidArgument("the body of an implementation must not be blank")
        if not isinstance(self.properties, Mapping):
            raise InvalidArgument(
                f"an implementation's properties map strings to strings, not {shown(self.properties)}"
            )
        runtime = clean_optional(self.runtime, "a runtime")
        if runtime is not None and not runtime.strip():
            raise InvalidArgument("a runtime must not be blank; None means any")
        clean_optional(self.handler, "a handler")
        places: dict[str, Any] = {
            name: tuple([clean_text(place, "a place") for place in items(getattr(self, name), name)])
            for name in ("jars", "files", "archives")
        }
        pairs = self.properties.items()
        clean = {clean_text(k, "a property's key"): clean_text(v, f"the property {k!r}") for k, v in pairs}
        vars(self).update(
            places,
            language=self.language.lower(),
            runtime=runtime and runtime.lower(),
            properties=read_only(clean),
        )

    def __hash__(self) -> int:
        return hash((self.language, self.runtime, self.body))

    def __reduce__(self) -> tuple[Any, ...]:
        return decode_implementation, (implementation_doc(self),)


@dataclass(frozen=True)
class Definition:
    """A function for parameters of these types.

    ``parameters`` are columns, with a default where they may be left out. ``returns`` is a type; for a table function,
    the columns of its rows.
    """

    parameters: tuple[Column, ...] = ()
    returns: str | tuple[Column, ...] = "string"
    implementations: tuple[Implementation, ...] = ()

    def __post_init__(self) -> None:
        parameters = check_columns(self.parameters)
        optional = [p.name for p in parameters if p.default is not None]
        if optional and optional != [p.name for p in parameters[-len(optional) :]]:
            raise InvalidArgument(f"optional parameters must come last; {optional[0]!r} does not")
        returns = str(parse(self.returns)) if isinstance(self.returns, str) else check_columns(self.returns)
        done: list[Implementation] = []
        for one in items(self.implementations, "implementations"):
            if not isinstance(one, Implementation):
                raise InvalidArgument(f"an implementation is Implementation(language, body), not {shown(one)}")
            if any((one.language, one.runtime) == (other.language, other.runtime) for other in done):
                raise InvalidArgument(f"there are two implementations {_which(one.language, one.runtime)}")
            done.append(one)
        vars(self).update(parameters=parameters, returns=returns, implementations=tuple(done))


def clean_type(type: object) -> str:
    """Return the type of a function in lower case."""
    if not isinstance(type, str) or type.lower() not in FUNCTION_TYPES:
        raise InvalidArgument(f"a function's type is one of {', '.join(FUNCTION_TYPES)}, not {shown(type)}")
    return type.lower()


def clean_deterministic(deterministic: object) -> bool:
    """Return whether a function is deterministic."""
    return boolean(deterministic, "deterministic")


def stored_definitions(definitions: Iterable[Definition], draft: Doc, _: object) -> list[Doc]:
    """Return ``definitions`` as JSON. They must fit the type in ``draft``, and no call may fit two of them."""
    doc: Doc = {"type": draft["type"], "definitions": []}
    for one in definitions:
        try:
            add_definition(doc, one)
        except EntityAlreadyExists as error:
            raise InvalidArgument(str(error)) from None
    stored: list[Doc] = doc["definitions"]
    return stored


def add_definition(doc: Doc, definition: object, where: str = "the function") -> None:
    """Add a definition to a function's document.

    Raises EntityAlreadyExists if a call would fit two definitions, InvalidArgument if the definition or what it returns
    has the wrong type.
    """
    if not isinstance(definition, Definition):
        raise InvalidArgument(f"a definition is Definition(parameters, returns, …), not {shown(definition)}")
    if (doc["type"] == "table") == isinstance(definition.returns, str):
        raise InvalidArgument("a table function must return columns; any other function must return a type")
    new = definition_doc(definition)
    for other in doc["definitions"]:
        both = [call for call in _calls(new) if call in _calls(other)]
        if both:
            call = f"({', '.join(both[0])})"
            raise EntityAlreadyExists(f"{where}{call}", f"{where} has a definition for the call {call} already")
    doc["definitions"].append(new)


def add_implementation(definition: Doc, implementation: Implementation, where: str) -> None:
    """Add an implementation to a definition's document. Raises EntityAlreadyExists."""
    key = implementation.language, implementation.runtime
    if any((other["language"], other.get("runtime")) == key for other in definition["implementations"]):
        which = _which(*key)
        raise EntityAlreadyExists(where, f"{where} has an implementation {which} already; replace it instead")
    definition["implementations"].append(implementation_doc(implementation))


def _which(language: str, runtime: str | None) -> str:
    return f"in {language} for {runtime or 'any runtime'}"


def clean_signature(parameters: object) -> Signature:
    """Return the types of a definition's parameters in canonical spelling. ``parameters`` are columns or types."""
    types = [one.type if isinstance(one, Column) else one for one in items(parameters, "parameters")]
    return tuple([str(parse(one)) for one in types])


def signature_of(definition: Mapping[str, Any]) -> Signature:
    """Return the types of all parameters of a definition's document."""
    return tuple([parameter["type"] for parameter in definition["parameters"]])


def _calls(definition: Mapping[str, Any]) -> list[Signature]:
    """Return the types of the arguments of each call that fits a definition."""
    types = signature_of(definition)
    needed = sum("default" not in parameter for parameter in definition["parameters"])
    return [types[:count] for count in range(needed, len(types) + 1)]


def definition_doc(definition: Definition) -> Doc:
    """Return a definition as JSON."""
    returns = definition.returns
    return {
        "parameters": [_column_doc(column) for column in definition.parameters],
        "returns": returns if isinstance(returns, str) else [_column_doc(column) for column in returns],
        "implementations": [implementation_doc(one) for one in definition.implementations],
    }


def implementation_doc(one: Implementation) -> Doc:
    """Return an implementation as JSON, without its empty fields; an empty string is kept."""
    values = {key: list(value) if isinstance(value, tuple) else value for key, value in vars(one).items()}
    return {key: dict(value) if key == "properties" else value for key, value in values.items() if value or value == ""}


def decode_definitions(docs: Iterable[Mapping[str, Any]]) -> tuple[Definition, ...]:
    """Return the definitions of a function's document."""
    return tuple([decode_definition(doc) for doc in docs])


def decode_definition(doc: Mapping[str, Any]) -> Definition:
    """Return the definition that :func:`definition_doc` wrote. Fields that are left out get their default."""
    returns = doc.get("returns", "string")
    return Definition(
        tuple([Column(**column) for column in doc.get("parameters", ())]),
        returns if isinstance(returns, str) else tuple([Column(**column) for column in returns]),
        tuple([decode_implementation(one) for one in doc.get("implementations", ())]),
    )


def decode_implementation(doc: Mapping[str, Any]) -> Implementation:
    """Return the implementation that :func:`implementation_doc` wrote."""
    return Implementation(**doc)


def _column_doc(column: Column) -> Doc:
    """Return a parameter or result column as JSON: unlike a table's column, its type is one text, and it has no id."""
    doc: Doc = {"name": column.name, "type": column.type}
    usual = {"nullable": True, "default": None, "comment": None, "auto_increment": False}
    return doc | {key: getattr(column, key) for key, value in usual.items() if getattr(column, key) != value}
