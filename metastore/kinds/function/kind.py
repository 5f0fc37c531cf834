"""The function: definitions for calls with different parameters, each with implementations for different engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from metastore.kinds.entity import Entity
from metastore.kinds.function import changes as function_changes
from metastore.kinds.function.document import Definition, decode_definitions, function_doc
from metastore.kinds.kind import COMMON_CHANGES, Kind

__all__ = ["FUNCTION", "Function"]


class Function(Entity):
    """A function. ``type`` is scalar, aggregate or table."""

    type: Literal["scalar", "aggregate", "table"]
    deterministic: bool
    definitions: tuple[Definition, ...]

    doc_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "type": str,
        "deterministic": bool,
        "definitions": decode_definitions,
    }


_FUNCTION_CHANGES = (
    function_changes.AddDefinition,
    function_changes.DropDefinition,
    function_changes.AddImplementation,
    function_changes.SetImplementation,
    function_changes.DropImplementation,
)

FUNCTION = Kind(
    "function",
    "function",
    ("schema",),
    Function,
    new_doc=function_doc,
    changes=COMMON_CHANGES + _FUNCTION_CHANGES,
    since=2,
)
