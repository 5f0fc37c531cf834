"""The process from which Spark forks the Python workers of tests. It imports all that they need, once for all workers.

Spark starts it instead of ``pyspark.daemon`` (``spark.python.daemon.module``), and it does the same work: to import the
same in each worker takes longer than what most tests do in it.
"""

from __future__ import annotations

import pandas as pd  # noqa: F401
import pyspark.sql.worker.plan_data_source_read
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import metastore.backends.postgres.backend
import metastore.backends.sqlite.backend
import metastore.crawl.tasks
import metastore.spark.bulk
import metastore.spark.source.source
import metastore.spark.views  # noqa: F401

if __name__ == "__main__":
    manager()
