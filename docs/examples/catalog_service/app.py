"""A catalog service over HTTP in one file: run as many processes of it as you like, on one database.

    METASTORE_URL=postgresql+psycopg://… uvicorn app:app --workers 2

Each process opens the store once, after the fork, and shares it among its threads. Nothing in this file locks, retries
or merges: the library does. Its router knows preconditions, idempotency keys, pages, deadlines and errors. A service
adds who asks, and routes of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

import metastore as ms
import metastore.http

DEADLINE = 10.0
"""How long one request may take (seconds). Keep it below the time-out of whatever is in front."""


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the store when the process begins to serve; close it when the last request is answered."""
    with ms.open(pool_size=16, max_wait=2.0) as store:
        app.state.store = store
        yield


def caller(request: Request) -> ms.Store:
    """Return the store as this request's user sees it. Put your authentication here."""
    store: ms.Store = request.app.state.store
    return store.bind(principal=request.headers.get("X-User", "anonymous"))


app = FastAPI(title="A catalog service", lifespan=lifespan)
app.mount("/v1", metastore.http.router(caller, deadline=DEADLINE))


@app.exception_handler(ms.MetastoreError)
async def failed(_: Request, error: ms.MetastoreError) -> JSONResponse:
    """Answer every error of the library: it knows its status, its code, and when to come again."""
    return metastore.http.problem(error)


@app.get("/healthz")
def healthy(request: Request) -> dict[str, str]:
    """Answer 200 while the database answers."""
    request.app.state.store.ping()
    return {"status": "ok"}
