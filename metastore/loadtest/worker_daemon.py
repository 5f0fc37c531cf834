"""The process from which Spark forks the clients. It imports all modules that a client needs, once for all clients.

Spark starts it instead of ``pyspark.daemon`` (``spark.python.daemon.module``), and it does the same work.
"""

from __future__ import annotations

import tenacity  # noqa: F401  (a conflict would import it)
from pyspark.daemon import manager

import metastore.backends.postgres.backend
import metastore.backends.sqlite.backend
import metastore.loadtest.client
import metastore.loadtest.scenarios  # noqa: F401

if __name__ == "__main__":
    manager()
