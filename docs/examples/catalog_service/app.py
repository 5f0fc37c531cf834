"""A catalog service over HTTP in one file: run as many processes of it as you like, on one database.

    METASTORE_URL=postgresql+psycopg://… uvicorn app:app --workers 2

Each process opens the store once, after the fork, and shares it among its threads. Nothing in this file locks, retries
or merges: the library does. What a service adds is HTTP: who asks, preconditions, idempotency keys, pages, errors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Body, Depends, FastAPI, Header, Query, Request, Response
from fastapi.responses import JSONResponse

import metastore as ms

DEADLINE = 10.0
"""How long one request may take (seconds). Keep it below the time-out of whatever stands in front."""


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the store when the process begins to serve; close it when the last request is answered."""
    with ms.open(pool_size=16, max_wait=2.0) as store:
        app.state.store = store
        yield


app = FastAPI(title="A catalog service", lifespan=lifespan)


@app.exception_handler(ms.MetastoreError)
async def failed(_: Request, error: ms.MetastoreError) -> JSONResponse:
    """Answer every error of the library: it knows its status, its code, and when to come again."""
    headers = {} if error.retry_after is None else {"Retry-After": str(max(1, round(error.retry_after)))}
    return JSONResponse({"error": error.to_dict()}, error.http_status, headers)


def caller(request: Request, user: Annotated[str, Header(alias="X-User")] = "anonymous") -> ms.Store:
    """Return the store as this request's user sees it. Put your authentication here."""
    store: ms.Store = request.app.state.store
    return store.bind(principal=user, deadline=DEADLINE)


Caller = Annotated[ms.Store, Depends(caller)]
IfMatch = Annotated[str | None, Header()]


def etag(entity: ms.Entity) -> str:
    """Return a tag that changes with every change; the id tells a recreated entity from the one before."""
    return f'"{entity.id}-{entity.version}"'


def answer(entity: ms.Entity, status: int = 200) -> JSONResponse:
    """Answer with an entity and its tag."""
    return JSONResponse(entity.to_dict(), status, {"ETag": etag(entity)})


def once(key: str | None, user: str) -> dict[str, Any]:
    """Return the option that makes a repeat of the request return the first answer."""
    return {} if key is None else {"operation_id": ms.key(key, scope=user)}


def expected(store: ms.Store, path: str, if_match: str | None) -> tuple[ms.Table | str, dict[str, Any]]:
    """Return what a change is addressed to, and its precondition.

    With If-Match that is the very entity that the client saw: its id comes from the tag, so that a table which was
    dropped and made again under the same name is not mistaken for it.
    """
    if if_match is None:
        return path, {}
    seen_id, _, version = if_match.strip('"').partition("-")
    table = store.tables.load(path)
    if not version.isdecimal() or str(table.id) != seen_id:
        raise ms.VersionConflict(path, None, None, f"{path} is not the table with the tag {if_match}; load it again")
    return table, {"expected_version": int(version)}


@app.post("/v1/tables/{path}")
def create(
    path: str,
    store: Caller,
    body: Annotated[dict[str, Any], Body()],
    key: Annotated[str | None, Header(alias="Idempotency-Key")] = None,
    user: Annotated[str, Header(alias="X-User")] = "anonymous",
) -> JSONResponse:
    """Create a table. The body has the fields of ``ms.json_schema("table")`` that a client may set."""
    known = {"columns", "comment", "properties", "partitioning", "location", "format"}
    if unknown := sorted(set(body) - known):
        raise ms.InvalidArgument(f"unknown fields: {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    try:
        columns = [ms.Column(**column) for column in body.pop("columns", ())]
    except TypeError as error:
        raise ms.InvalidArgument(f"columns: {error}") from None
    return answer(store.tables.create(path, columns=columns, parents=True, **once(key, user), **body), 201)


@app.get("/v1/tables/{path}")
def load(path: str, store: Caller, if_none_match: Annotated[str | None, Header()] = None) -> Response:
    """Return a table, or 304 if the client has it already."""
    table = store.tables.load(path)
    return Response(status_code=304, headers={"ETag": etag(table)}) if if_none_match == etag(table) else answer(table)


@app.patch("/v1/tables/{path}")
def alter(
    path: str,
    store: Caller,
    changes: Annotated[list[dict[str, Any]], Body()],
    if_match: IfMatch = None,
    key: Annotated[str | None, Header(alias="Idempotency-Key")] = None,
    user: Annotated[str, Header(alias="X-User")] = "anonymous",
) -> JSONResponse:
    """Apply changes, merged with what others do; with If-Match only to the version that the client saw."""
    target, options = expected(store, path, if_match)
    return answer(store.tables.alter(target, *ms.changes_from_list(changes), **options, **once(key, user)))


@app.delete("/v1/tables/{path}")
def drop(path: str, store: Caller, if_match: IfMatch = None) -> dict[str, bool]:
    """Drop a table; ``dropped`` is false where there was none."""
    if if_match is None:
        return {"dropped": store.tables.drop(path)}
    target, options = expected(store, path, if_match)
    return {"dropped": store.tables.drop(target, **options)}


@app.get("/v1/schemas/{path}/tables")
def tables(
    path: str,
    store: Caller,
    size: Annotated[int, Query(ge=1, le=1000)] = 100,
    token: str | None = None,
    prefix: str | None = None,
) -> dict[str, Any]:
    """Return one page; ``next_token`` leads to the next, whichever process answers."""
    page = store.tables.page(path, size=size, token=token, prefix=prefix)
    return {"items": [table.to_dict() for table in page.items], "next_token": page.next_token}


@app.get("/v1/changes")
def changes(
    store: Caller, after: str | None = None, size: Annotated[int, Query(ge=1, le=1000)] = 100
) -> dict[str, Any]:
    """Return what happened after a position, in order; ask again with the last position."""
    page = store.changes_page(after=after, size=size)
    return {"changes": [change.to_dict() for change in page.items], "next_token": page.next_token}


@app.get("/healthz")
def healthy(request: Request) -> dict[str, str]:
    """Answer 200 while the database answers."""
    request.app.state.store.ping()
    return {"status": "ok"}
