"""The statistic: an owned row that holds what is known of the data behind an entity.

It stands outside the document, because it changes far more often than what it describes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from metastore.errors import InvalidArgument
from metastore.kinds.change import Doc
from metastore.kinds.entity import Owned
from metastore.kinds.kind import MAX_DEPTH, OwnedKind, is_too_deep

__all__ = ["STATISTIC", "Statistic"]


class Statistic(Owned):
    """A named set of figures: ``values`` is any JSON object."""

    values: Mapping[str, Any]

    doc_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"values": MappingProxyType}


def _new_doc(*, values: Any) -> Doc:
    if not isinstance(values, Mapping):
        raise InvalidArgument("a statistic's values must be a JSON object")
    try:
        clean = json.loads(json.dumps(dict(values), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"a statistic's values must be a JSON object: {error}") from None
    if is_too_deep({"values": clean}):
        raise InvalidArgument(f"a statistic's values lie in each other more than {MAX_DEPTH} deep")
    return {"values": clean}


STATISTIC = OwnedKind("statistic", Statistic, new_doc=_new_doc)
