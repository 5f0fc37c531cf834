"""JSON objects as callers give them: checked, and copied."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from metastore.errors import InvalidArgument
from metastore.kinds.kind import MAX_DEPTH, is_too_deep

__all__ = ["clean_json_object"]


def clean_json_object(value: Any, what: str) -> dict[str, Any]:
    """Return a copy of a JSON object. Raises InvalidArgument; ``what`` names it, such as "a policy's content"."""
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{what} must be a JSON object")
    try:
        text = json.dumps(dict(value), allow_nan=False, ensure_ascii=False)
        text.encode()  # raises for a lone surrogate, which can neither be stored nor shown
        clean: dict[str, Any] = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{what} must be a JSON object: {error}") from None
    if is_too_deep({"values": clean}):
        raise InvalidArgument(f"{what}: lists and objects are nested more than {MAX_DEPTH} deep")
    if not _has_text_keys(value):
        raise InvalidArgument(f"{what} must be a JSON object: its keys are strings, also in objects inside it")
    return clean


def _has_text_keys(value: object) -> bool:
    """Whether the keys of all objects are strings. JSON makes one key of 1 and "1", so a value would be lost."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _has_text_keys(inner) for key, inner in value.items())
    return not isinstance(value, list | tuple) or all(map(_has_text_keys, value))
