"""A router for Starlette and FastAPI: it serves the catalog over HTTP. Needs the extra ``http``.

``app.mount("/v1", metastore.http.router(store))``. docs/services.md describes it. It has the parts that are easy to get
wrong: pages, ETags with preconditions, idempotency keys, deadlines, and errors as problem details (RFC 9457). Each
request runs in a thread.
"""

from __future__ import annotations

try:
    from metastore.http.problems import problem
    from metastore.http.router import router
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"metastore.http needs {error.name}: pip install 'versioned-metastore[http]'", name=error.name
    ) from None

__all__ = ["problem", "router"]
