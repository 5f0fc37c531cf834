"""A versioned, optimistic store for data-catalog metadata that needs no locks."""

from __future__ import annotations

from metastore.changes import RemoveProperty, SetComment, SetProperty
from metastore.clock import SYSTEM as _SYSTEM
from metastore.collecting import Collected
from metastore.columns import Column
from metastore.entity import Change, Entity, Version
from metastore.errors import (
    BackendUnavailable,
    DeadlineExceeded,
    EntityAlreadyExists,
    EntityNotFound,
    InvalidArgument,
    MetastoreError,
    MigrationNeeded,
    NotEmpty,
    NotInUse,
    OutcomeUnknown,
    RetriesExhausted,
    ScopeFrozen,
    VersionConflict,
)
from metastore.kinds.catalog import Catalog
from metastore.kinds.fileset import Fileset
from metastore.kinds.metalake import Metalake
from metastore.kinds.partition import Partition
from metastore.kinds.schema import Schema
from metastore.kinds.statistic import Statistic
from metastore.kinds.table import Table
from metastore.layout import Index
from metastore.metrics import Snapshot
from metastore.results import Outcome
from metastore.stats import Stats
from metastore.store import Store, migrate
from metastore.store import open_store as open
from metastore.table_changes import (
    FIRST,
    AddColumn,
    AddIndex,
    DropColumn,
    DropIndex,
    MoveColumn,
    RenameColumn,
    RetypeColumn,
    SetAutoIncrement,
    SetColumnComment,
    SetColumnDefault,
    SetColumnNullable,
    SetFormat,
    SetLocation,
)
from metastore.violations import Violation

new_operation_id = _SYSTEM.operation_id
"""A new UUIDv7, for ``operation_id=`` of a mutation."""

__all__ = [
    "FIRST",
    "AddColumn",
    "AddIndex",
    "BackendUnavailable",
    "Catalog",
    "Change",
    "Collected",
    "Column",
    "DeadlineExceeded",
    "DropColumn",
    "DropIndex",
    "Entity",
    "EntityAlreadyExists",
    "EntityNotFound",
    "Fileset",
    "Index",
    "InvalidArgument",
    "Metalake",
    "MetastoreError",
    "MigrationNeeded",
    "MoveColumn",
    "NotEmpty",
    "NotInUse",
    "Outcome",
    "OutcomeUnknown",
    "Partition",
    "RemoveProperty",
    "RenameColumn",
    "RetriesExhausted",
    "RetypeColumn",
    "Schema",
    "ScopeFrozen",
    "SetAutoIncrement",
    "SetColumnComment",
    "SetColumnDefault",
    "SetColumnNullable",
    "SetComment",
    "SetFormat",
    "SetLocation",
    "SetProperty",
    "Snapshot",
    "Statistic",
    "Stats",
    "Store",
    "Table",
    "Version",
    "VersionConflict",
    "Violation",
    "migrate",
    "new_operation_id",
    "open",
]
