"""The statistics of one partition: an owned row of the table, under the partition's name.

It belongs to the partition that existed when it was created, which therefore has the lower id. A partition that is
dropped and created again does not inherit it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from metastore.kinds.entity import Owned
from metastore.kinds.field import doc_field
from metastore.kinds.json_object import clean_json_object
from metastore.kinds.kind import OwnedKind
from metastore.plain import read_only

__all__ = ["PARTITION_STATISTIC", "PartitionStatistic", "belongs"]


class PartitionStatistic(Owned):
    """The statistics of one partition: ``values`` maps names to values."""

    values: Mapping[str, Any] = doc_field(partial(clean_json_object, what="a partition's statistics"), decode=read_only)


PARTITION_STATISTIC = OwnedKind("partition_statistic", PartitionStatistic, "table")


def belongs(row_id: int, partition_id: int | None) -> bool:
    """Whether statistics belong to this partition: ids grow, so those of an earlier partition have a lower id.

    A row that a transaction makes has no id yet (0); it gets a higher id than all existing rows.
    """
    return partition_id is not None and (row_id == 0 or row_id > partition_id > 0)
