"""The partition: an owned row of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from metastore.arguments import shown
from metastore.errors import InvalidArgument
from metastore.kinds.change import Doc
from metastore.kinds.entity import Owned
from metastore.kinds.kind import OwnedKind
from metastore.names import clean_text

__all__ = ["PARTITION", "Partition"]


class Partition(Owned):
    """A partition: the values of the table's partitioning columns, as strings."""

    values: Mapping[str, str]

    doc_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"values": MappingProxyType}


def _new_doc(*, values: Any) -> Doc:
    if not isinstance(values, Mapping):
        raise InvalidArgument("a partition's values must map column names to strings")
    pairs = values.items()
    return {"values": {clean_text(k, "a column's name"): clean_text(v, f"the value of {shown(k)}") for k, v in pairs}}


PARTITION = OwnedKind("partition", Partition, new_doc=_new_doc)
