"""Create an entity: from the call to the entity, including missing schemas above it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from metastore.arguments import boolean, known_keywords
from metastore.deadlines import until
from metastore.errors import DeadlineExceeded, EntityNotFound, OutcomeUnknown
from metastore.kinds.catalog import CATALOG
from metastore.kinds.entity import Entity
from metastore.kinds.kind import Kind
from metastore.kinds.registry import KINDS
from metastore.managers.attempts.create import Wish, check_if_exists, create, with_properties
from metastore.managers.mutation import actor_of, first_entity
from metastore.managers.options import CREATE_OPTIONS, CreateOptions, call_from
from metastore.managers.secrets.sealing import declared, seal_of_catalog, sealed_call
from metastore.names import Path, format_path, parse_path
from metastore.operation.guards import lookup
from metastore.operation.perform import is_new, perform
from metastore.operation.request import Call, Proposal, Request, View
from metastore.operation.seals import Seal
from metastore.operation.session import ManagerSession


def create_entity(
    session: ManagerSession, kind: Kind, path: Path, fields: Mapping[str, Any], options: CreateOptions
) -> Entity:
    """Create an entity of ``kind`` and return it, or do what ``if_exists`` says if one exists."""
    known_keywords(options, CREATE_OPTIONS, fields)
    boolean(options.get("parents", False), "parents")
    properties = options.get("properties")
    if not properties:
        return _create(session, kind, path, fields, options, None)
    if kind is CATALOG:
        made = _create(session, kind, path, fields, options, seal_of_catalog(session, properties))
        declared(session)
        return made
    where = options.get("parent") or path
    return sealed_call(session, kind, where, options, lambda seal: _create(session, kind, path, fields, options, seal))


def _create(
    session: ManagerSession,
    kind: Kind,
    path: Path,
    fields: Mapping[str, Any],
    options: CreateOptions,
    seal: Seal | None,
) -> Entity:
    request, call = _request(session, kind, path, fields, options, seal)
    if not options.get("parents") or options.get("parent") is not None:
        return perform(session, request, call)
    ends, rounds = session.clock.monotonic() + session.policy_of(call).deadline, 0
    with until(ends):
        if call.operation_id is not None and not session.in_transaction:
            # make parents before the first attempt: otherwise the error about them would become the operation's result
            _make_all_parents(session, kind, path, options, call)
        while True:
            try:
                return perform(session, request, call)
            except EntityNotFound:
                rounds += 1
                if session.in_transaction and rounds > len(parse_path(path)):
                    raise  # a transaction keeps its reads, so another round would read the same
                if session.clock.monotonic() >= ends:
                    raise DeadlineExceeded(
                        f"nothing was created at {path!r}: a schema above it was dropped again and again until the "
                        "deadline; call again"
                    ) from None
                if not _make_parent(session, kind, path, options):
                    raise


def _request(
    session: ManagerSession,
    kind: Kind,
    path: Path,
    fields: Mapping[str, Any],
    options: CreateOptions,
    seal: Seal | None,
) -> tuple[Request[Entity], Call]:
    if_exists, parent = options.get("if_exists", "error"), options.get("parent")
    check_if_exists(if_exists)
    properties = options.get("properties", MappingProxyType({}))
    if seal is not None:
        properties = seal.properties(properties)
    wish = Wish(kind, options.get("comment"), properties, kind.take(fields))
    call = call_from(options)
    doc, actor = wish.document(), actor_of(session, call)
    added = () if seal is None else seal.more  # a repeat may add another data key's number

    def attempt(view: View) -> Proposal[Entity] | Entity:
        decided = create(view, wish, doc, path, parent, if_exists, actor)
        if not isinstance(decided, Proposal) or decided.merge is None or not wish.encrypts:
            return decided
        repeatable = seal is not None and call.operation_id is None  # see Manager.alter
        return replace(decided, merge=seal.announced(decided.merge) if seal and repeatable else None)

    request: Request[Entity] = Request(
        verb="create",
        what=lambda: f"create {kind.name} {path!r}",
        attempt=attempt if seal is None else seal.guarding(attempt),
        replay=first_entity,
        arguments=lambda: [
            kind.name,
            list(parse_path(path)),
            parent and parent.id,
            with_properties(doc, wish.secrets, without=added),
            if_exists,
        ],
        where=_nowhere if if_exists == "error" else None,
    )
    return request, call


def _nowhere() -> None:
    """Return None: a create that fails because the name is taken changes no existing entity."""


def _make_all_parents(session: ManagerSession, kind: Kind, path: Path, options: CreateOptions, call: Call) -> None:
    """Create all missing schemas above ``path``, unless the same operation id was used before."""
    names = parse_path(path)
    for depth in range(len(names)):
        (resolved,) = session.backend.resolve([lookup(kind, names)])
        if len(resolved.nodes) >= len(names) - 1:
            return
        if (depth == 0 and not is_new(session.of_store(), call)) or not _make_parent(session, kind, path, options):
            return


def _make_parent(session: ManagerSession, kind: Kind, path: Path, options: CreateOptions) -> bool:
    """Create the first missing schema above ``path``; False if an entity of another kind is missing."""
    names = parse_path(path)
    where = lookup(kind, names)
    (resolved,) = session.backend.resolve([where])
    depth = len(resolved.nodes) + 1
    if depth >= len(names) or where.families[depth - 1] != KINDS["schema"].family:
        return depth >= len(names)
    more = CreateOptions(
        if_exists="return",
        principal=options.get("principal"),
        deadline=options.get("deadline"),
        lease=options.get("lease"),
        reason=options.get("reason"),
    )
    try:
        create_entity(session, KINDS["schema"], names[:depth], {}, more)
    except OutcomeUnknown:
        # The schema may exist now, which does no harm. The call's own operation was not sent yet.
        own = call_from(options).operation_id or session.clock.operation_id()
        raise OutcomeUnknown(
            own,
            f"{format_path(names)} was not created: the answer to the creation of a schema above it was lost; "
            "call again",
        ) from None
    return True
