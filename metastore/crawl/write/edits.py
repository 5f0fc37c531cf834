"""Find out whether people have put anything on a table that the crawler made, beside the table's own document.

These relations count: tags, policies, rights, other declared ones, and an owner, except the owner who was noted because
the crawler created the table. These rows count: statistics and partitions that are not the crawler's, the crawler's
partitions if people gave them properties, and rows of other kinds.
"""

from __future__ import annotations

import json
from typing import Any

from metastore.crawl.dataset.figures import PROFILE, STATISTIC
from metastore.crawl.write.plan import PART_PROPERTIES
from metastore.kinds.drop import DROP
from metastore.kinds.partition import PARTITION
from metastore.kinds.relation import OWNER
from metastore.kinds.statistic import STATISTIC as STATISTICS
from metastore.kinds.table.kind import Table
from metastore.port.records import OwnedRecord
from metastore.port.relations import End, RelationRecord

__all__ = ["has_more"]


def has_more(sources: Any, table: Table) -> bool:
    """Return whether people have put anything on ``table``. ``sources``: the sources of a store or a transaction."""
    related = any(not _is_first_owner(row, other, table) for row, other in sources.relations(table))
    return related or any(not _is_own(row) for row in sources.rows(table))


def _is_first_owner(row: RelationRecord, other: End, table: Table) -> bool:
    return row.kind == OWNER.name and other.chain[-1].name == table.created_by == row.created_by


def _is_own(row: OwnedRecord) -> bool:
    if row.kind == DROP.name:
        return True  # the row says that the table is being dropped
    if row.kind == STATISTICS.name:
        return row.name in (STATISTIC, PROFILE)
    if row.kind != PARTITION.name:
        return False
    doc = json.loads(row.doc)
    return doc["comment"] is None and doc["properties"].keys() == PART_PROPERTIES
