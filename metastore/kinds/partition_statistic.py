"""The statistics of one partition: an owned row of the table, under the partition's name.

The row names the partition's id, so that a partition that is dropped and made again does not inherit it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from metastore.kinds.entity import Owned
from metastore.kinds.field import as_stored, doc_field
from metastore.kinds.json_object import clean_json_object
from metastore.kinds.kind import OwnedKind

__all__ = ["PARTITION_STATISTIC", "PartitionStatistic"]


class PartitionStatistic(Owned):
    """The values of the partition with the id ``partition``, by their names."""

    partition: int = doc_field(as_stored)
    values: Mapping[str, Any] = doc_field(
        partial(clean_json_object, what="a partition's statistics"), decode=MappingProxyType
    )


PARTITION_STATISTIC = OwnedKind("partition_statistic", PartitionStatistic)
