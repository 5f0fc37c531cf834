"""Route the requests of the Iceberg REST specification to their handlers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from metastore.pyiceberg.catalog import MetastoreCatalog
from metastore.pyiceberg.once import Once, Refused
from metastore.serve.iceberg import namespaces, tables, views
from metastore.serve.iceberg.credentials import asks_for_credentials
from metastore.serve.iceberg.errors import NotSupported, failed, is_final, unknown_route
from metastore.serve.iceberg.warehouses import Warehouses
from metastore.serve.principals import Principals
from metastore.serve.web import Answer, Call, Protocol, Route, route

__all__ = ["iceberg_protocol"]

OfCatalog = Callable[[MetastoreCatalog, Call], Answer | tables.Loaded]

_NAMESPACE: Final = "/namespaces/{namespace}"
_TABLE: Final = f"{_NAMESPACE}/tables/{{table}}"
_CREDENTIALS: Final = f"{_TABLE}/credentials"
_VIEW: Final = f"{_NAMESPACE}/views/{{view}}"
_ROUTES: Final[tuple[tuple[str, str, OfCatalog], ...]] = (
    ("GET", "/namespaces", namespaces.page),
    ("POST", "/namespaces", namespaces.create),
    ("GET", _NAMESPACE, namespaces.load),
    ("HEAD", _NAMESPACE, namespaces.exists),
    ("DELETE", _NAMESPACE, namespaces.drop),
    ("POST", f"{_NAMESPACE}/properties", namespaces.update),
    ("GET", f"{_NAMESPACE}/tables", tables.page),
    ("POST", f"{_NAMESPACE}/tables", tables.create),
    ("POST", f"{_NAMESPACE}/register", tables.register),
    ("GET", _TABLE, tables.load),
    ("POST", _TABLE, tables.commit),
    ("HEAD", _TABLE, tables.exists),
    ("DELETE", _TABLE, tables.drop),
    ("POST", f"{_TABLE}/metrics", tables.metrics),
    ("POST", "/tables/rename", tables.rename),
    ("POST", "/transactions/commit", tables.commit_several),
    ("GET", f"{_NAMESPACE}/views", views.page),
    ("POST", f"{_NAMESPACE}/views", views.create),
    ("POST", f"{_NAMESPACE}/register-view", views.register),
    ("GET", _VIEW, views.load),
    ("POST", _VIEW, views.replace),
    ("HEAD", _VIEW, views.exists),
    ("DELETE", _VIEW, views.drop),
    ("POST", "/views/rename", views.rename),
)
_REMEMBERED: Final = "P1D"
"""How long the server promises to know an Idempotency-Key; gc must keep operations for longer."""
_PLANS: Final = (
    ("POST", f"{_TABLE}/plan"),
    ("GET", f"{_TABLE}/plan/{{plan}}"),
    ("DELETE", f"{_TABLE}/plan/{{plan}}"),
    ("POST", f"{_TABLE}/tasks"),
)


def iceberg_protocol(warehouses: Warehouses, principals: Principals, body_timeout: float) -> Protocol:
    """Return the protocol of these warehouses. ``body_timeout``: how long a body may take to arrive (seconds)."""

    def bound(handler: OfCatalog) -> Callable[[Call], Answer]:
        def answer(call: Call) -> Answer:
            once = warehouses.once(call)
            once.claim([dict(call.query), call.said])

            def work() -> Answer:
                gives = asks_for_credentials(call.headers) and warehouses.vends(call)
                has = call.headers.get("if-none-match", "") if call.is_read else ""
                # with credentials, "not modified" is true only if the credentials are the same, so ``answer`` compares
                # both
                asked = replace(call, headers={**call.headers, "if-none-match": ""}) if gives else call
                result = handler(warehouses.catalog(call, once), asked)
                if isinstance(result, Answer):
                    return result
                if not gives:
                    return result.answer(None)
                names = tables.named(call)
                return result.answer(warehouses.vended(call, names, result.place, staged=result.staged), has)

            return _once(once, work, checked=warehouses.checked)

        return answer

    def credentials(call: Call) -> Answer:
        # a request of this path asks for credentials, even without the header, which Java's clients do not send here
        place = tables.place(warehouses.catalog(call), call)
        return tables.credentials(warehouses.vended(call, tables.named(call), place))

    routes: list[Route] = [route("GET", "/v1/config", lambda call: _config(warehouses, call))]
    routes += [route(method, f"/v1/{{prefix}}{path}", bound(handler)) for method, path, handler in _ROUTES]
    routes.append(route("GET", f"/v1/{{prefix}}{_CREDENTIALS}", credentials))
    routes += [route(method, f"/v1/{{prefix}}{path}", _plan) for method, path in _PLANS]
    return Protocol(
        *(routes, failed, unknown_route, principals), body_timeout=body_timeout, warehouses=warehouses.prefixes()
    )


def _once(once: Once, work: Callable[[], Answer], *, checked: bool) -> Answer:
    """Answer a request. An answer that refuses it for good is kept, and given to each repeat under the same key."""
    try:
        try:
            return work()
        except Refused:
            raise
        except Exception as error:
            if not is_final(answer := failed(error), checked=checked):
                raise
            if once.settle({"body": answer.body, "status": answer.status}):
                return answer
            # a repeat has committed: this answers from the table's present state, or raises if the table is gone
            return work()
    except Refused as refused:
        return Answer(**refused.answer)


def _config(warehouses: Warehouses, call: Call) -> Answer:
    """Return a client's prefix, and the endpoints of this server."""
    endpoints = [f"{method} /v1/{{prefix}}{path}" for method, path, _ in _ROUTES]
    endpoints.append(f"GET /v1/{{prefix}}{_CREDENTIALS}")
    prefix = warehouses.prefix(call.query.get("warehouse"), call.principal)
    overrides = {"prefix": prefix}
    return Answer(
        {"defaults": {}, "overrides": overrides, "endpoints": endpoints, "idempotency-key-lifetime": _REMEMBERED}
    )


def _plan(_: Call) -> Answer:
    raise NotSupported("this server plans no scans; the client plans them from the table's metadata")
