"""A versioned, optimistic store for data-catalog metadata that needs no locks."""

from __future__ import annotations

from metastore.changes import RemoveProperty, SetComment, SetProperty
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
    "OutcomeUnknown",
    "Partition",
    "RemoveProperty",
    "RenameColumn",
    "RetriesExhausted",
    "RetypeColumn",
    "Schema",
    "SetAutoIncrement",
    "SetColumnComment",
    "SetColumnDefault",
    "SetColumnNullable",
    "SetComment",
    "SetFormat",
    "SetLocation",
    "SetProperty",
    "Statistic",
    "Store",
    "Table",
    "Version",
    "VersionConflict",
    "Violation",
    "migrate",
    "open",
]
