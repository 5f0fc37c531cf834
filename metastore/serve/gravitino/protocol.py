"""Route the requests of Gravitino's REST API to their handlers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from metastore.serve.actors import Actors
from metastore.serve.gravitino import (
    access,
    credentials,
    entities,
    filesets,
    jobs,
    objects,
    partition_statistics,
    partitions,
    versions,
)
from metastore.serve.gravitino.errors import NotSupported, failed, unknown_route
from metastore.serve.gravitino.resources import RESOURCES, Resource
from metastore.serve.principals import ANONYMOUS
from metastore.serve.web import Answer, Call, Protocol, Route, route

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["VERSION", "gravitino_protocol"]

VERSION: Final = "1.3.1"
"""The version of the API, which clients compare with theirs."""

Handler = Callable[["Store", Call], Answer]


def gravitino_protocol(actors: Actors, reveals: Sequence[str], body_timeout: float) -> Protocol:
    """Return the protocol of the store that ``actors`` has for each client.

    ``reveals``: prefixes of the references whose secrets credentials may show. ``body_timeout``: how long a body may
    take to arrive (seconds).
    """
    routes = [route("GET", "/version", _version), route("GET", "/authn/me", _me)]
    for method, path, kind, handler in [
        *_endpoints(),
        *objects.endpoints(checked=actors.authorization),
        *credentials.endpoints(reveals),
    ]:
        routes.append(_bound(actors, method, path, kind, handler))
    return Protocol(routes, failed, unknown_route, actors.principals, MEDIA_TYPE, body_timeout=body_timeout)


def _endpoints() -> list[tuple[str, str, str, Handler]]:
    """Return method, path, kind and handler of each endpoint."""
    endpoints: list[tuple[str, str, str, Handler]] = []
    for resource in RESOURCES:
        endpoints += _of_resource(resource)
    endpoints += [*versions.ENDPOINTS, *partition_statistics.ENDPOINTS]
    endpoints += [*access.ENDPOINTS, *filesets.ENDPOINTS, *partitions.ENDPOINTS, *jobs.ENDPOINTS]
    endpoints.append(("POST", "/metalakes/{metalake}/catalogs/testConnection", "catalog", _test_connection))
    return endpoints


def _of_resource(resource: Resource) -> list[tuple[str, str, str, Handler]]:
    place = "".join(f"/{_MANY[kind]}/{{{kind}}}" for kind in resource.above) + f"/{resource.many}"
    one = f"{place}/{{{resource.kind}}}"
    table = [
        ("GET", place, entities.page),
        ("POST", place, entities.create),
        ("GET", one, entities.load),
        ("DELETE", one, entities.drop),
    ]
    if resource.updates:
        table.append(("PUT", one, entities.alter))
    if resource.kind in ("metalake", "catalog", "policy"):
        table.append(("PATCH", one, entities.set_in_use))
    return [(method, path, resource.kind, _of(resource, handler)) for method, path, handler in table]


MEDIA_TYPE: Final = "application/vnd.gravitino.v1+json"
"""The type of all answers."""
_MANY: Final = {"metalake": "metalakes", "catalog": "catalogs", "schema": "schemas"}


def _of(resource: Resource, handler: Callable[[Store, Resource, Call], Answer]) -> Handler:
    return lambda store, call: handler(store, resource, call)


def _bound(actors: Actors, method: str, path: str, kind: str, handler: Handler) -> Route:
    """Return the route of a handler, which runs as the user of the request; its errors name the kind."""

    def answer(call: Call) -> Answer:
        try:
            return handler(actors.of(call.principal), call)
        except Exception as error:  # noqa: BLE001  (each error has its answer; a defect is logged there)
            return replace(failed(error, kind), error=error)

    return route(method, path, answer)


def _version(_: Call) -> Answer:
    version = {"version": VERSION, "compileDate": "unknown", "gitCommit": "unknown"}
    return Answer({"code": 0, "version": version})


def _me(call: Call) -> Answer:
    return Answer({"code": 0, "principal": call.principal.name or ANONYMOUS})


def _test_connection(_store: Store, _call: Call) -> Answer:
    raise NotSupported("this server stores catalogs, and cannot connect to an engine; import them instead")
