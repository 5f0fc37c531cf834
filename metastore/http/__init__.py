"""A router for Starlette and FastAPI: the catalog over HTTP, with what is easy to get wrong. Needs the extra ``http``.

``app.mount("/v1", metastore.http.router(store))``. docs/services.md describes it. It has pages, ETags with
preconditions, idempotency keys, deadlines, and errors as problem details (RFC 9457). Each request runs in a thread.
"""

from __future__ import annotations

from metastore.http.problems import problem
from metastore.http.router import router

__all__ = ["problem", "router"]
