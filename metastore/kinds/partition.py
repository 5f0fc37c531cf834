"""The partition: an owned row of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metastore.arguments import shown
from metastore.errors import InvalidArgument
from metastore.kinds.entity import Owned
from metastore.kinds.field import doc_field
from metastore.kinds.kind import OwnedKind
from metastore.names import clean_text
from metastore.plain import read_only

__all__ = ["PARTITION", "Partition"]


def _clean_values(values: Any) -> dict[str, str]:
    if not isinstance(values, Mapping):
        raise InvalidArgument("a partition's values must map column names to strings")
    pairs = values.items()
    return {clean_text(k, "a column's name"): clean_text(v, f"the value of {shown(k)}") for k, v in pairs}


class Partition(Owned):
    """A partition: ``values`` holds those of the table's partitioning columns, as strings."""

    values: Mapping[str, str] = doc_field(_clean_values, decode=read_only)


PARTITION = OwnedKind("partition", Partition, "table")
