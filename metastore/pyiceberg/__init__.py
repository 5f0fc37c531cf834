"""A catalog for PyIceberg: Iceberg tables, views and namespaces in a store.

``load_catalog("x", **{"py-catalog-impl": "metastore.pyiceberg.MetastoreCatalog", …})`` opens one; see docs/iceberg.md.
"""

from __future__ import annotations

from metastore.pyiceberg.catalog import MetastoreCatalog

__all__ = ["MetastoreCatalog"]
