"""The process that Spark forks the clients from. What a client imports is imported here, once for all of them.

Spark starts it instead of ``pyspark.daemon`` (``spark.python.daemon.module``), whose work it does.
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
