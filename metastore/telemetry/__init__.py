"""Spans and metrics for OpenTelemetry. Needs opentelemetry-api, the extra ``[opentelemetry]``."""

from __future__ import annotations

from metastore.telemetry.meters import observe
from metastore.telemetry.spans import spans

__all__ = ["observe", "spans"]
