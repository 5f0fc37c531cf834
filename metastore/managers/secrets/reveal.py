"""Read the secret that a property refers to."""

from __future__ import annotations

from metastore.arguments import shown
from metastore.errors import EntityNotFound, InvalidArgument, VersionConflict
from metastore.kinds.entity import Entity
from metastore.kinds.families import families_of
from metastore.kinds.registry import KINDS, kind_given, kind_named
from metastore.kinds.secret import SEALED, Secret, read
from metastore.managers.target import Target, find
from metastore.names import clean_text, parse_path
from metastore.operation.request import View
from metastore.operation.session import ManagerSession
from metastore.port.records import Lookup, Record


def reveal(session: ManagerSession, entity: Entity, key: str, expected: str | None = None) -> str:
    """Return the secret to which the property ``key`` of an entity as it was read refers, or which it has encrypted.

    Raises EntityNotFound, InvalidArgument; VersionConflict if the reference is not ``expected``; for an encrypted
    secret SecretKeyMissing, SecretKeyWrong, SecretDamaged.
    """
    reference, what = secret_of(entity, key)
    if expected is not None and expected != reference:
        message = f"{what} has changed since it was read; load {entity.path} again"
        raise VersionConflict(str(entity.path), "the property as it was read", "another one", message)
    if not reference.stored.startswith(SEALED):
        return read(reference, what)
    assert session.seals is not None
    key = clean_text(key, "a property's key")
    return session.seals.sealer.open(key, entity.doc["properties"][key], entity.id, what)


def secret_of(entity: Entity, key: str) -> tuple[Secret, str]:
    """Return the reference in a property, and a description of the property."""
    key = clean_text(key, "a property's key")
    what = f"the property {shown(key)} of {entity.path}"
    value = entity.properties.get(key)
    if value is None:
        raise EntityNotFound(f"{entity.path}.{key}", f"{entity.path} has no property {shown(key)}")
    if not isinstance(value, Secret):
        raise InvalidArgument(f"{what} is not a secret; load shows it")
    return value, what


def entity_of(session: ManagerSession, target: Target, kind: str | None) -> Entity:
    """Return a loaded entity as it is now, or the entity at a path: of ``kind``, or of the first kind that exists."""
    backend = session.backend
    if isinstance(target, Entity):
        record = find(View(backend, False), kind_named(target.kind), target)
    elif kind is not None:
        record = find(View(backend, False), kind_given(kind), target)
    else:
        record = _at(session, target)
    return kind_named(record.chain[-1].kind).entity(record, backend.origin)


def _at(session: ManagerSession, target: Target) -> Record:
    """Return the entity at a path, of any kind; a container comes before other entities with its path."""
    names = parse_path(target)
    kinds = sorted(KINDS.values(), key=lambda one: not one.container)
    families = dict.fromkeys(found for one in kinds if (found := families_of(one, len(names))) is not None)
    for resolved in session.backend.resolve([Lookup(family, names) for family in families]) if families else ():
        if resolved.record is not None:
            return resolved.record
    raise EntityNotFound(str(target))
