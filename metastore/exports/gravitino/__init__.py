"""Write the store into Gravitino's own tables: read an export, write its rows, read them back and compare."""

from __future__ import annotations

from metastore.exports.gravitino.report import ExportReport
from metastore.exports.gravitino.run import export_gravitino

__all__ = ["ExportReport", "export_gravitino"]
