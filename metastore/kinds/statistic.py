"""The statistic: an owned row with figures about the data behind an entity.

It is no part of the entity's document, because it changes far more often.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from metastore.errors import InvalidArgument
from metastore.kinds.entity import Owned
from metastore.kinds.field import doc_field
from metastore.kinds.kind import MAX_DEPTH, OwnedKind, is_too_deep
from metastore.plain import read_only

__all__ = ["STATISTIC", "Statistic"]


def _clean_values(values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise InvalidArgument("a statistic's values must be a JSON object")
    try:
        clean: dict[str, Any] = json.loads(json.dumps(dict(values), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"a statistic's values must be a JSON object: {error}") from None
    if is_too_deep({"values": clean}):
        raise InvalidArgument(f"a statistic's values lie in each other more than {MAX_DEPTH} deep")
    return clean


class Statistic(Owned):
    """A named set of figures: ``values`` is any JSON object."""

    values: Mapping[str, Any] = doc_field(_clean_values, decode=read_only)


STATISTIC = OwnedKind("statistic", Statistic)
