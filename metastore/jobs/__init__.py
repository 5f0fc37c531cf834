"""Run jobs: fill in templates, claim queued jobs, and run them on any of several servers.

from metastore.jobs import WorkerPool, submit

with WorkerPool(store, workers=2):
job = submit(store, "lake.report", {"day": "2026-01-01"})
"""

from __future__ import annotations

from metastore.jobs.pool import WorkerPool
from metastore.jobs.submit import filled, submit
from metastore.jobs.unfinished import has_unfinished

__all__ = ["WorkerPool", "filled", "has_unfinished", "submit"]
