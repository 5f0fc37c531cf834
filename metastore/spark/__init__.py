"""Read the catalog's tables in Spark. Needs the extra ``spark``.

``register(spark, url, "lake.catalog")`` makes a temporary view of each table, ``read(spark, url, path)`` returns one
table as a data frame; see docs/spark.md. ``register_source(spark)`` lets Spark query the catalog itself; see
docs/pipeline.md. Nothing is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from metastore.spark.bulk import attach_many, set_statistics, statistics
    from metastore.spark.histories import history
    from metastore.spark.source.source import register_source
    from metastore.spark.views import Registered, read, register

__all__ = [
    "Registered",
    "attach_many",
    "history",
    "read",
    "register",
    "register_source",
    "set_statistics",
    "statistics",
]

_HOMES: Final = dict.fromkeys(__all__, "metastore.spark.views") | {
    **dict.fromkeys(("attach_many", "set_statistics", "statistics"), "metastore.spark.bulk"),
    "history": "metastore.spark.histories",
    "register_source": "metastore.spark.source.source",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
