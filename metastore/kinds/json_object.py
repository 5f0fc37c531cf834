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
        text.encode()  # a lone surrogate can be neither stored nor shown
        clean: dict[str, Any] = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{what} must be a JSON object: {error}") from None
    if is_too_deep({"values": clean}):
        raise InvalidArgument(f"{what}: lists and objects are nested more than {MAX_DEPTH} deep")
    return clean
