"""The function: definitions for calls with different parameters, each with implementations for different engines."""

from __future__ import annotations

from typing import Literal

from metastore.kinds.entity import Entity
from metastore.kinds.field import doc_field
from metastore.kinds.function import changes as function_changes
from metastore.kinds.function.document import (
    Definition,
    clean_deterministic,
    clean_type,
    decode_definitions,
    stored_definitions,
)
from metastore.kinds.kind import COMMON_CHANGES, Kind

__all__ = ["FUNCTION", "Function"]


class Function(Entity):
    """A function. ``type`` is scalar, aggregate or table."""

    type: Literal["scalar", "aggregate", "table"] = doc_field(clean_type, default="scalar", decode=str)
    deterministic: bool = doc_field(clean_deterministic, default=False, decode=bool)
    definitions: tuple[Definition, ...] = doc_field(beside=stored_definitions, several=True, decode=decode_definitions)


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
    changes=COMMON_CHANGES + _FUNCTION_CHANGES,
    since=2,
)
