"""The process from which Spark forks its Python workers. It imports all that a crawl needs, once for all workers.

Spark starts it instead of ``pyspark.daemon`` (``spark.python.daemon.module``), and it does the same work.
"""

from __future__ import annotations

from pyspark.daemon import manager

import metastore.backends.postgres.backend
import metastore.backends.sqlite.backend
import metastore.crawl.tasks  # noqa: F401

if __name__ == "__main__":
    manager()
