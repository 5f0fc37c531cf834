"""A versioned, optimistic store for data-catalog metadata that needs no locks.

Each name is imported at its first use, because a command that only shows its version needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metastore.homes import HOMES
from metastore.version import __version__

if TYPE_CHECKING:
    from metastore.aio.opening import open_async
    from metastore.cache.options import Cache
    from metastore.clock import new_operation_id
    from metastore.columns.column import Column
    from metastore.errors import (
        BackendRefused,
        BackendUnavailable,
        CacheFenced,
        DeadlineExceeded,
        DropPending,
        EntityAlreadyExists,
        EntityNotFound,
        HistoryGone,
        InvalidArgument,
        LeaseHeld,
        LeaseLost,
        MetastoreError,
        MigrationNeeded,
        NotEmpty,
        NotInUse,
        OperationIdRefused,
        OperationIdReused,
        OutcomeUnknown,
        PermissionDenied,
        PoolExhausted,
        RetriesExhausted,
        ScopeFrozen,
        SecretDamaged,
        SecretKeyMissing,
        SecretKeyWrong,
        StoreClosed,
        UnreadableRow,
        VersionConflict,
    )
    from metastore.gc import Collected
    from metastore.kinds.attached import Attached, Grant
    from metastore.kinds.catalog import Catalog
    from metastore.kinds.change import EntityChange, RemoveProperty, SetComment, SetProperty
    from metastore.kinds.declared import Field, Kind
    from metastore.kinds.entity import Change, Entity, Version
    from metastore.kinds.fileset import Fileset
    from metastore.kinds.function.changes import (
        AddDefinition,
        AddImplementation,
        DropDefinition,
        DropImplementation,
        SetImplementation,
    )
    from metastore.kinds.function.document import Definition, Implementation
    from metastore.kinds.function.kind import Function
    from metastore.kinds.handlers import on_drop
    from metastore.kinds.job.run import CancelJob, FinishJob, Job, StartJob
    from metastore.kinds.job.template import JobTemplate, SetTemplate
    from metastore.kinds.json_schema import json_schema
    from metastore.kinds.metalake import Metalake
    from metastore.kinds.model.changes import RemoveUri, SetUri
    from metastore.kinds.model.kind import Model
    from metastore.kinds.model.version import ModelVersion
    from metastore.kinds.partition import Partition
    from metastore.kinds.policy import Policy, SetContent, SetEnabled, SetSupports
    from metastore.kinds.principal import Group, Role, SetExternalId, User
    from metastore.kinds.read_changes import change_from_dict, changes_from_list
    from metastore.kinds.relation import Relation, Relationship
    from metastore.kinds.schema import Schema
    from metastore.kinds.secret import Secret, secret
    from metastore.kinds.statistic import Statistic
    from metastore.kinds.table.changes import (
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
    from metastore.kinds.table.kind import Table
    from metastore.kinds.table.layout import Index
    from metastore.kinds.tag import SetAllowedValues, Tag
    from metastore.kinds.topic import Topic
    from metastore.kinds.view.changes import (
        RemoveRepresentation,
        SetDefaultCatalog,
        SetDefaultSchema,
        SetRepresentation,
    )
    from metastore.kinds.view.document import SQL
    from metastore.kinds.view.kind import View
    from metastore.leases.book import Holder, LeaseEvent
    from metastore.leases.changes import LeaseHolder
    from metastore.leases.lease import Lease, LeaseSet
    from metastore.leases.objects.leases import ObjectStoreLeases
    from metastore.leases.staging import LeftBehind
    from metastore.managers.drops.pending import PendingDrop
    from metastore.managers.find_page import FoundPage
    from metastore.managers.pages.page import Page
    from metastore.metrics import Snapshot
    from metastore.operation.keys import key
    from metastore.operation.outcome import Outcome
    from metastore.past.consumers import Consumer, Lag
    from metastore.past.diff import Difference
    from metastore.past.pins import Pin
    from metastore.past.view import Past
    from metastore.port.stats import CacheStats, PoolUse
    from metastore.replicas.view import Replica
    from metastore.stats import Stats
    from metastore.store import Store, migrate, restore
    from metastore.store import open_store as open
    from metastore.store.losses import Loss
    from metastore.transfer.backup import back_up, put_back
    from metastore.transfer.outcomes import Exported, Imported
    from metastore.verify.violations import Violation

__all__ = [
    "FIRST",
    "SQL",
    "AddColumn",
    "AddDefinition",
    "AddImplementation",
    "AddIndex",
    "Attached",
    "BackendRefused",
    "BackendUnavailable",
    "Cache",
    "CacheFenced",
    "CacheStats",
    "CancelJob",
    "Catalog",
    "Change",
    "Collected",
    "Column",
    "Consumer",
    "DeadlineExceeded",
    "Definition",
    "Difference",
    "DropColumn",
    "DropDefinition",
    "DropImplementation",
    "DropIndex",
    "DropPending",
    "Entity",
    "EntityAlreadyExists",
    "EntityChange",
    "EntityNotFound",
    "Exported",
    "Field",
    "Fileset",
    "FinishJob",
    "FoundPage",
    "Function",
    "Grant",
    "Group",
    "HistoryGone",
    "Holder",
    "Implementation",
    "Imported",
    "Index",
    "InvalidArgument",
    "Job",
    "JobTemplate",
    "Kind",
    "Lag",
    "Lease",
    "LeaseEvent",
    "LeaseHeld",
    "LeaseHolder",
    "LeaseLost",
    "LeaseSet",
    "LeftBehind",
    "Loss",
    "Metalake",
    "MetastoreError",
    "MigrationNeeded",
    "Model",
    "ModelVersion",
    "MoveColumn",
    "NotEmpty",
    "NotInUse",
    "ObjectStoreLeases",
    "OperationIdRefused",
    "OperationIdReused",
    "Outcome",
    "OutcomeUnknown",
    "Page",
    "Partition",
    "Past",
    "PendingDrop",
    "PermissionDenied",
    "Pin",
    "Policy",
    "PoolExhausted",
    "PoolUse",
    "Relation",
    "Relationship",
    "RemoveProperty",
    "RemoveRepresentation",
    "RemoveUri",
    "RenameColumn",
    "Replica",
    "RetriesExhausted",
    "RetypeColumn",
    "Role",
    "Schema",
    "ScopeFrozen",
    "Secret",
    "SecretDamaged",
    "SecretKeyMissing",
    "SecretKeyWrong",
    "SetAllowedValues",
    "SetAutoIncrement",
    "SetColumnComment",
    "SetColumnDefault",
    "SetColumnNullable",
    "SetComment",
    "SetContent",
    "SetDefaultCatalog",
    "SetDefaultSchema",
    "SetEnabled",
    "SetExternalId",
    "SetFormat",
    "SetImplementation",
    "SetLocation",
    "SetProperty",
    "SetRepresentation",
    "SetSupports",
    "SetTemplate",
    "SetUri",
    "Snapshot",
    "StartJob",
    "Statistic",
    "Stats",
    "Store",
    "StoreClosed",
    "Table",
    "Tag",
    "Topic",
    "UnreadableRow",
    "User",
    "Version",
    "VersionConflict",
    "View",
    "Violation",
    "__version__",
    "back_up",
    "change_from_dict",
    "changes_from_list",
    "json_schema",
    "key",
    "migrate",
    "new_operation_id",
    "on_drop",
    "open",
    "open_async",
    "put_back",
    "restore",
    "secret",
]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{HOMES[name]}")
    value = globals()[name] = getattr(module, "open_store" if name == "open" else name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
