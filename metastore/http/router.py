"""Route requests about entities to the managers of a store; see :mod:`metastore.http`.

==========  =====================================  ==========================================================
GET         /KINDS, /KINDS/PARENT/KINDS            a page of the children: ``size``, ``token``, ``prefix``
GET         /KINDS/PATH                            an entity, with its ETag; ``If-None-Match``
GET         /KINDS/PATH/history                    a page of its versions
POST        /KINDS/PATH                            create it; ``parents=true``, ``if_exists=return|replace``
PATCH       /KINDS/PATH                            apply changes: a list of objects; ``If-Match``
POST        /KINDS/PATH/rename                     ``{"to": name or path}``; ``If-Match``
DELETE      /KINDS/PATH                            drop it; ``cascade=true``, ``If-Match``
GET         /changes                               the feed: ``after``, ``size``, ``kinds``, ``under``, ``kind``
==========  =====================================  ==========================================================

KINDS is the plural of a kind: ``tables``, ``policies``. A slash in a name is ``%2F``. Each write takes
``Idempotency-Key``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from metastore.arguments import positive_seconds, shown
from metastore.errors import EntityAlreadyExists, EntityNotFound, InvalidArgument, MetastoreError, VersionConflict
from metastore.http.conditions import conditioned
from metastore.http.etags import Tags, etag, tags_in
from metastore.http.fields import fields_of
from metastore.http.problems import problem, unknown_method
from metastore.kinds.entity import Entity
from metastore.kinds.read_changes import changes_from_list
from metastore.kinds.registry import KINDS
from metastore.managers.declared import DeclaredManager
from metastore.operation.keys import key
from metastore.plain.bodies import LARGE, read_json, read_large_json
from metastore.store import Store

__all__ = ["router"]

_LARGEST: Final = 16 << 20
"""The largest body of a request (bytes)."""
_DIGITS: Final = 9
"""How many digits the size of a page may have."""
_WAIT: Final = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,9})\"?", re.IGNORECASE)

Source = Store | Callable[[Request], Store]


def router(store: Source, *, deadline: float = 10.0) -> Router:
    """Return an application to mount: ``app.mount("/v1", metastore.http.router(store))``.

    ``store``: a store, or a function that returns the store as the user of a request sees it, such as
    ``store.bind(principal=…)`` or ``store.as_user(…)``. A client's keys belong to the store's principal.
    ``deadline``: how long each call may take (seconds); a client shortens it with ``Prefer: wait=SECONDS`` (RFC 7240).
    Raises InvalidArgument.
    """
    if not isinstance(store, Store) and not callable(store):
        raise InvalidArgument(f"a router serves a store, or a function that returns the user's, not {shown(store)}")
    served = _Served(store, positive_seconds(deadline, "a deadline"))
    paths = "/{kinds}/{path:path}"
    return Router(
        [
            Route("/changes", served.answers(_changes), methods=["GET"]),
            Route("/{kinds}", served.answers(_listed), methods=["GET"]),
            Route(paths, served.answers(_read), methods=["GET"]),
            Route(paths, served.answers(_posted), methods=["POST"]),
            Route(paths, served.answers(_altered), methods=["PATCH"]),
            Route(paths, served.answers(_dropped), methods=["DELETE"]),
            Route("/{rest:path}", _Unknown()),
        ]
    )


@dataclass(frozen=True)
class _Call:
    """One request with its whole body."""

    store: Store
    request: Request
    body: bytes

    @property
    def path(self) -> str:
        return str(self.request.path_params["path"])

    @property
    def parts(self) -> tuple[str, str]:
        """The entity's path, and the requested part, such as ``history``; "" means the entity itself.

        A name may have a slash, which is ``%2F`` in the address. So the address before decoding decides whether the
        last part belongs to the name.
        """
        above, _, last = self.path.rpartition("/")
        raw: bytes = self.request.scope.get("raw_path") or self.request.scope["path"].encode()
        is_cut = raw.partition(b"?")[0].endswith(f"/{last}".encode())
        return (above, last) if above and is_cut else (self.path, "")

    @property
    def manager(self) -> DeclaredManager:
        return self.manager_of(self.request.path_params["kinds"])

    def manager_of(self, kinds: str) -> DeclaredManager:
        """Return the manager of the kind with this plural. Raises EntityNotFound for an unknown plural."""
        kind = _kind_of(kinds)
        if kind is None:
            raise EntityNotFound(kinds, f"there is no collection {shown(kinds)}; use the plural of a kind: tables")
        return self.store.manager(kind)

    @property
    def json(self) -> Any:
        text = self.body or b"null"
        try:
            return read_large_json(text) if len(text) > LARGE else read_json(text)
        except ValueError as error:
            raise InvalidArgument(str(error)) from None

    def text(self, name: str) -> str | None:
        """Return a parameter of the query."""
        return self.request.query_params.get(name)

    def flag(self, name: str) -> bool:
        """Return whether a parameter of the query is true. Raises InvalidArgument."""
        text = (self.text(name) or "false").lower()
        if text not in ("true", "false"):
            raise InvalidArgument(f"{name} is true or false, not {shown(text)}")
        return text == "true"

    @property
    def paging(self) -> dict[str, Any]:
        """The parameters of a page. Raises InvalidArgument."""
        size = self.text("size") or "100"
        if not size.isdecimal() or len(size) > _DIGITS:
            raise InvalidArgument(f"size is a number of at most {_DIGITS} digits, not {shown(size)}")
        return {"size": int(size), "token": self.text("token")}

    def key(self, scope: str = "") -> UUID | None:
        """Return the operation id of the client's key; ``scope`` distinguishes it from the same key elsewhere."""
        text = self.request.headers.get("idempotency-key")
        whose = f"{self.store._session.principal or ''}{scope}"  # noqa: SLF001  (the same package)
        return None if text is None else key(text, scope=whose)

    @property
    def if_match(self) -> Tags | None:
        """The precondition of a write.

        Raises InvalidArgument for ``If-None-Match``, which this request does not check.
        """
        if self._joined("if-none-match") is not None:
            raise InvalidArgument("this request checks If-Match; If-None-Match is for a read, or for a new entity")
        return tags_in(self._joined("if-match"))

    @property
    def if_none_match(self) -> Tags | None:
        return tags_in(self._joined("if-none-match"))

    def _joined(self, name: str) -> str | None:
        return ", ".join(self.request.headers.getlist(name)) or None


class _Served:
    """The served store, and the time that a call may take."""

    def __init__(self, store: Source, deadline: float) -> None:
        self._store, self._deadline = store, deadline

    def answers(self, work: Callable[[_Call], Response]) -> Callable[[Request], Any]:
        """Return an endpoint: it reads the request on the loop, and works in a thread."""

        async def endpoint(request: Request) -> Response:
            try:
                body = await _body(request)
                return await run_in_threadpool(lambda: work(_Call(self._view(request), request, body)))
            except MetastoreError as error:
                return problem(error)

        return endpoint

    def _view(self, request: Request) -> Store:
        store = self._store if isinstance(self._store, Store) else self._store(request)
        wait = _WAIT.search(", ".join(request.headers.getlist("prefer")))
        seconds = min(self._deadline, max(float(wait[1]), 0.001) if wait else math.inf)
        return store.bind(deadline=seconds)


class _Unknown:
    """Answer the requests that no other route takes. Starlette would answer in plain text.

    A class, because Starlette lets a function answer only GET and HEAD, and an ASGI application every method.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path_params"]["rest"]
        if path:
            methods = "DELETE, GET, HEAD, PATCH, POST" if "/" in path else "GET, HEAD"
            answer = unknown_method(scope["method"], shown(f"/{path}"), methods)
        else:
            answer = problem(EntityNotFound("/", "there is nothing at /; ask for a collection, such as /metalakes"))
        await answer(scope, receive, send)


async def _body(request: Request) -> bytes:
    parts, size = list[bytes](), 0
    async for part in request.stream():
        size += len(part)
        if size > _LARGEST:
            raise InvalidArgument(f"the body has more than {_LARGEST:,} bytes")
        parts.append(part)
    return b"".join(parts)


def _kind_of(kinds: str) -> str | None:
    """Return the kind with this plural; None if no kind has it."""
    for kind in KINDS:
        if kinds == (f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"):
            return kind
    return None


def _answer(entity: Entity, status: int = 200) -> JSONResponse:
    return JSONResponse(entity.to_dict(), status, {"ETag": etag(entity)})


def _listed(call: _Call) -> Response:
    return JSONResponse(call.manager.page(None, **call.paging, prefix=call.text("prefix")).to_dict())


def _read(call: _Call) -> Response:
    above, last = call.parts
    if last == "history":
        return JSONResponse(call.manager.history_page(above, **call.paging).to_dict())
    if last and _kind_of(last) is not None:
        parent = call.manager.load(above)
        return JSONResponse(call.manager_of(last).page(parent, **call.paging, prefix=call.text("prefix")).to_dict())
    entity, seen = call.manager.load(call.path), call.if_none_match
    if seen is not None and seen.name(entity):
        return Response(status_code=304, headers={"ETag": etag(entity)})
    return _answer(entity)


def _posted(call: _Call) -> Response:
    above, last = call.parts
    return _renamed(call, above) if last == "rename" else _created(call)


def _created(call: _Call) -> Response:
    manager, absent = call.manager, call.if_none_match
    if call.request.headers.get("if-match") is not None or not (absent is None or absent.anything):
        raise InvalidArgument("the only precondition of a new entity is If-None-Match: *; use If-Match with PATCH")
    body = call.json if call.body else {}
    fields = fields_of(manager._kind.name, manager.create, body)  # noqa: SLF001
    if_exists = "error" if absent is not None else call.text("if_exists") or "error"
    options: dict[str, Any] = {"parents": call.flag("parents"), "if_exists": if_exists}
    if (operation_id := call.key()) is not None:
        options["operation_id"] = operation_id
    try:
        return _answer(manager.create(call.path, **options, **fields), 201)
    except EntityAlreadyExists as error:
        if absent is None:
            raise
        raise VersionConflict(error.path, None, None, f"{error}; If-None-Match: * asks for a new one") from None


def _renamed(call: _Call, path: str) -> Response:
    body = call.json
    to = body.get("to") if isinstance(body, dict) else None
    if not isinstance(to, str):
        raise InvalidArgument('a rename is {"to": a name or a path}')
    manager = call.manager

    def write(target: Any, options: dict[str, Any]) -> Entity:
        return manager.rename(target, to, **options)

    return _answer(conditioned(call.store, manager, path, call.if_match, call.key(), write))


def _altered(call: _Call) -> Response:
    manager, changes = call.manager, changes_from_list(call.json)

    def write(target: Any, options: dict[str, Any]) -> Entity:
        return manager.alter(target, *changes, **options)

    return _answer(conditioned(call.store, manager, call.path, call.if_match, call.key(), write))


def _dropped(call: _Call) -> Response:
    manager, cascade, tags = call.manager, call.flag("cascade"), call.if_match
    # after the drop, no path leads to the entity's id. So the key includes the path and the tag, and its outcome is
    # looked up first
    operation_id = call.key(f"\nDELETE {call.path}\n{tags}" if tags else "")
    if tags and operation_id is not None and call.store.outcome(operation_id).result is True:
        return JSONResponse({"dropped": True})

    def write(target: Any, options: dict[str, Any]) -> bool:
        return manager.drop(target, cascade=cascade, **options)

    dropped = conditioned(call.store, manager, call.path, tags, operation_id, write)
    if tags and not dropped:
        raise VersionConflict(call.path, None, None, f"{call.path} does not exist, so If-Match cannot match")
    return JSONResponse({"dropped": dropped})


def _changes(call: _Call) -> Response:
    kinds = call.text("kinds")
    page = call.store.changes_page(
        after=call.text("after"),
        size=call.paging["size"],
        kinds=None if kinds is None else kinds.split(","),
        under=call.text("under"),
        kind=call.text("kind"),
    )
    return JSONResponse(page.to_dict())
