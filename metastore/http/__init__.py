"""A router for Starlette and FastAPI: it serves the catalog over HTTP. Needs the extra ``http``.

``app.mount("/v1", metastore.http.router(store))``. docs/services.md describes it. It has the parts that are easy to get
wrong: pages, ETags with preconditions, idempotency keys, deadlines, and errors as problem details (RFC 9457). Each
request runs in a thread.
"""

from __future__ import annotations

from metastore.http.problems import problem
from metastore.http.router import router

__all__ = ["problem", "router"]
