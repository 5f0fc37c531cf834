"""The servers of leases on object storage are in worlds."""

from __future__ import annotations

from tests.leases.worlds import azurite, bucket, locks_server, postgres_world

__all__ = ["azurite", "bucket", "locks_server", "postgres_world"]
