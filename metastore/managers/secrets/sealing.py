"""Encrypt the properties that a catalog declares secret, before a call becomes a change; see ``operation/seals.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from metastore.deadlines import until
from metastore.errors import DeadlineExceeded, SecretDamaged, SecretKeyMissing, SecretKeyWrong, VersionConflict
from metastore.kinds.change import EntityChange, RemoveProperty, SetProperty
from metastore.kinds.entity import Entity
from metastore.kinds.families import parent_kind
from metastore.kinds.kind import Kind
from metastore.managers.options import CallOptions, call_from
from metastore.managers.target import Target
from metastore.names import format_path, parse_path
from metastore.operation.seals import NO_SEAL, Seal, Stale, seal_of
from metastore.operation.session import ManagerSession
from metastore.secrets.declared import KEY, PATTERNS, declared_in

T = TypeVar("T")


def sets_properties(changes: Iterable[EntityChange]) -> bool:
    """Whether one of the changes gives a property a value."""
    for one in changes:  # noqa: SIM110  (a loop: a generator takes longer, in each alter)
        if isinstance(one, SetProperty):
            return True
    return False


def seal_of_catalog(session: ManagerSession, properties: object) -> Seal:
    """Return the seal of a catalog that the call makes or replaces, from its new properties."""
    if session.seals is None or not isinstance(properties, Mapping):
        return NO_SEAL
    sealer, settings, compares = session.seals.sealer, declared_in(properties), session.access is None
    if settings.patterns and KEY not in properties and (number := sealer.newest()) != settings.key:
        return Seal(sealer, None, settings._replace(key=number), {KEY: str(number)}, compares=compares)
    return Seal(sealer, None, sealer.usable(settings), compares=compares)


def fresh_seal(session: ManagerSession, kind: Kind, parent: Target | None) -> Seal:
    """Return the seal of new entities of ``kind`` below ``parent``, from a read made in this call."""
    above = (
        parent_kind(kind, len(parse_path(parent))) if parent is not None and not isinstance(parent, Entity) else kind
    )
    if session.seals is None or parent is None or above is None:
        return NO_SEAL
    return session.seals.seal(session.backend, above, parent, in_transaction=session.in_transaction, fresh=True)


def seal_in_hand(session: ManagerSession, catalog: Entity) -> Seal:
    """Return the seal of a call that guards a loaded catalog at its loaded scope version."""
    return NO_SEAL if session.seals is None else seal_of(session.seals.sealer, catalog.record)


def settles(changes: Iterable[EntityChange]) -> bool:
    """Whether one of the changes of a catalog changes its settings."""
    return any(isinstance(one, SetProperty | RemoveProperty) and one.key in (PATTERNS, KEY) for one in changes)


def declared(session: ManagerSession) -> None:
    """Note that the session's transaction made a catalog, or changed the settings of one."""
    session.declares = session.in_transaction


def as_seen(session: ManagerSession, seal: Seal, call: Callable[[Seal], T]) -> T:
    """Make a call with its seal; if the user does not see the catalog, the error must not say what is missing.

    In that case, make the call as if the catalog did not exist, with nothing to guard: see :meth:`Seal.guarding`.
    """
    if session.access is not None:
        seal = replace(seal, compares=False)
    try:
        return call(seal)
    except (SecretKeyMissing, SecretKeyWrong, SecretDamaged):
        hidden = session.access is not None and seal.catalog is not None
        if not hidden or seal.catalog is None or session.backend.by_id([seal.catalog.id]) != [None]:
            raise
    return call(seal.nowhere())


def sealed_call(
    session: ManagerSession, kind: Kind, where: Target, options: CallOptions, call: Callable[[Seal], T]
) -> T:
    """Make a call with its seal; if the settings have changed meanwhile, make it again within the same deadline."""
    seals, fresh = session.seals, session.declares
    if seals is None:
        return call(NO_SEAL)
    began = session.clock.monotonic()
    known = seals.unsealed(kind, where) if session.access is None and not fresh and not session.in_transaction else None
    if known is not None:  # most calls take this way, and apply only their own deadline
        try:
            return call(known)
        except Stale:
            fresh = True
    ends = began + session.policy_of(call_from(options)).deadline
    while True:
        try:
            with until(ends):
                seal = seals.seal(session.backend, kind, where, in_transaction=session.in_transaction, fresh=fresh)
                return as_seen(session, seal, call)
        except Stale:
            if fresh and session.in_transaction:  # a second read in this transaction would return the same settings
                path = where.path if isinstance(where, Entity) else format_path(parse_path(where))
                changed = f"the catalog above {path} was changed while the transaction ran; run it again"
                raise VersionConflict(path, None, None, changed) from None
            if session.clock.monotonic() >= ends:
                raise DeadlineExceeded(
                    "nothing was applied: the catalog above was changed again and again until the deadline; call again"
                ) from None
        except SecretDamaged:  # a rotation may have destroyed the data key in the remembered settings
            if fresh:
                raise
        fresh = True
