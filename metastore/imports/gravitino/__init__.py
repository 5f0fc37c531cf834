"""Import Gravitino's own database: read it, write it down as an export, restore that or follow it."""

from __future__ import annotations

from metastore.imports.gravitino.report import Finding, Report
from metastore.imports.gravitino.run import import_gravitino

__all__ = ["Finding", "Report", "import_gravitino"]
