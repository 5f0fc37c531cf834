"""The async classes for users. ``surface.pyi`` has their types: ``python -m tests.aio`` writes it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from metastore.aio.derive import Derived, Opening, Stream, derive, stands_for
from metastore.clock import SYSTEM
from metastore.leases.heartbeat import Lost
from metastore.leases.in_store import StoreLeases
from metastore.leases.lease import Lease, LeaseSet
from metastore.managers import all as managers
from metastore.managers import builtin
from metastore.managers.drops.drops import Drops
from metastore.managers.drops.pending import PendingDrop
from metastore.managers.secrets.rotation import SecretStore
from metastore.past.consumers import Consumer, Consumers
from metastore.past.view import Past
from metastore.replicas.view import Replica
from metastore.store import Store
from metastore.store.views import BoundStore, UserStore
from metastore.transaction.freeze import FreezableSchemas, Freeze
from metastore.transaction.transaction import Transaction

__all__ = [
    "AsyncLease",
    "AsyncLeaseSet",
    "AsyncStore",
    "AsyncTransaction",
    "Opening",
    "Stream",
]

_LOOKS: Final = 0.1
"""How often a task that waits for the loss of a lease checks the lease (seconds)."""

AsyncStore = derive(Store)
AsyncTransaction = derive(Transaction, alone_in_room=True)
AsyncFreeze = derive(Freeze, alone_in_room=True)
AsyncStoreLeases = derive(StoreLeases)
AsyncLease = derive(Lease)
AsyncLeaseSet = derive(LeaseSet)
AsyncMetalakes = derive(builtin.Metalakes)
AsyncCatalogs = derive(builtin.Catalogs)
AsyncSchemas = derive(builtin.Schemas)
AsyncFreezableSchemas = derive(FreezableSchemas)
AsyncTables = derive(builtin.Tables)
AsyncViews = derive(builtin.Views)
AsyncFilesets = derive(builtin.Filesets)
AsyncTopics = derive(builtin.Topics)
AsyncFunctions = derive(builtin.Functions)
AsyncModels = derive(managers.Models)
AsyncTags = derive(managers.Tags)
AsyncPolicies = derive(managers.Policies)
AsyncUsers = derive(managers.Users)
AsyncGroups = derive(managers.Groups)
AsyncRoles = derive(managers.Roles)
AsyncJobTemplates = derive(builtin.JobTemplates)
AsyncJobs = derive(builtin.Jobs)
AsyncOwners = derive(managers.Owners)
AsyncPartitions = derive(managers.Partitions)
AsyncStatistics = derive(managers.Statistics)
AsyncSources = derive(managers.Sources)
AsyncCrawls = derive(managers.Crawls)
AsyncRelationManager = derive(managers.RelationManager)
AsyncDeclaredManager = derive(managers.DeclaredManager)
AsyncPast = derive(Past)
AsyncReplica = derive(Replica)
AsyncConsumers = derive(Consumers)
AsyncDrops = derive(Drops)
AsyncPendingDrop = derive(PendingDrop)
AsyncSecretStore = derive(SecretStore)
AsyncConsumer = derive(Consumer)
stands_for(BoundStore)(AsyncStore)
stands_for(UserStore)(AsyncStore)
Mapping.register(AsyncLeaseSet)


@stands_for(Lost)
class AsyncLost(Derived):
    """An event that is set when a lease is lost."""

    def is_set(self) -> bool:
        """Whether the lease is lost."""
        return bool(self._sync.is_set())

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the lease is lost, at most ``timeout`` seconds (None: no limit); return whether it is lost."""
        ends = None if timeout is None else SYSTEM.monotonic() + timeout
        while not self.is_set() and (ends is None or SYSTEM.monotonic() < ends):
            await asyncio.sleep(_LOOKS if ends is None else min(_LOOKS, max(0.0, ends - SYSTEM.monotonic())))
        return self.is_set()
