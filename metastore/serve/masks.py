"""The mask that both protocols show in place of a secret in plain text: no client may write it back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metastore.secrets.names import MASK, is_hidden
from metastore.serve.web import BadRequest

__all__ = ["without_masks"]


def without_masks(properties: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the properties of a request; refuse the mask that answers show in place of a secret."""
    for key, value in (properties or {}).items():
        if value == MASK and is_hidden(key):
            raise BadRequest(f"{key} has only the mask {MASK} as its value; leave it out, or give the secret itself")
    return dict(properties or {})
