"""The process that Spark forks its Python workers from. What a crawl imports is imported here, once for all of them.

Spark starts it instead of ``pyspark.daemon`` (``spark.python.daemon.module``), whose work it does.
"""

from __future__ import annotations

from pyspark.daemon import manager

import metastore.backends.postgres.backend
import metastore.backends.sqlite.backend
import metastore.crawl.tasks  # noqa: F401

if __name__ == "__main__":
    manager()
