"""The crawler: from folders of files to tables in the catalog, on Spark.

Call ``crawl(paths, into, url)``; :mod:`metastore.crawl.job` says how it works. Needs the extra ``spark`` (pyspark and
pyarrow).
"""

from __future__ import annotations

try:
    from metastore.crawl.interruption import Interrupted
    from metastore.crawl.job import Progress, crawl
    from metastore.crawl.report import CrawlReport, Failure, Note, TableResult
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"metastore.crawl needs {error.name}: pip install 'versioned-metastore[spark]'", name=error.name
    ) from None

__all__ = ["CrawlReport", "Failure", "Interrupted", "Note", "Progress", "TableResult", "crawl"]
