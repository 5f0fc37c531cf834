"""JSON: values of the public surface as plain values (``values.py``), and the bodies of requests (``bodies.py``)."""

from __future__ import annotations

from metastore.plain.values import ReadOnly, ReadOnlyList, parsed, plain, read_only

__all__ = ["ReadOnly", "ReadOnlyList", "parsed", "plain", "read_only"]
