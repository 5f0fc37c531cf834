"""Import Gravitino's own database: read it, write it to a file as an export, then restore that or follow it."""

from __future__ import annotations

from metastore.imports.gravitino.report import Finding, Report
from metastore.imports.gravitino.run import import_gravitino

__all__ = ["Finding", "Report", "import_gravitino"]
