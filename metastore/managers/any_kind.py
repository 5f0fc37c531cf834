"""Find the entity of any kind at a path. If entities of several kinds have the path, the caller must give the kind."""

from __future__ import annotations

from metastore.errors import EntityNotFound, InvalidArgument, MetastoreError
from metastore.kinds.entity import Entity
from metastore.kinds.families import families_of
from metastore.kinds.kind import Kind
from metastore.kinds.registry import KINDS, kind_given
from metastore.managers.target import absent_from, missing, unless_back
from metastore.names import Path, format_path, parse_path
from metastore.port.backend import Reads
from metastore.port.records import Lookup, Node, Record, Resolved


def check_kind(target: object, kind: str | None) -> None:
    """Raise InvalidArgument for an unknown kind, a kind without a target, or a loaded entity of another kind."""
    if kind is None:
        return
    if target is None:
        raise InvalidArgument("kind= is the kind of the path in under=; give under=, or choose changes with kinds=[…]")
    kind_given(kind)
    if isinstance(target, Entity) and target.kind != kind:
        raise InvalidArgument(f"{target.path} is a {target.kind}, not a {kind}")


def led_to(reads: Reads, path: Path, kind: str | None) -> Record:
    """Return the entity at a path.

    Raises EntityNotFound, DropPending, or InvalidArgument if entities of several kinds have the path.
    """
    names = parse_path(path)
    lookups = lookups_of(names, kind)
    resolved = reads.resolve(lookups) if lookups else []
    record = found_at(names, resolved, kind)
    if record is not None:
        return record
    if not lookups:
        raise missing(names, ())
    ends = [(where, one.nodes) for where, one in zip(lookups, resolved, strict=True)]
    return unless_back(lambda: _absent(reads, ends), lambda: led_to(reads, path, kind))


def _absent(reads: Reads, ends: list[tuple[Lookup, tuple[Node, ...]]]) -> MetastoreError:
    """Return the error for a path; if the ancestor that it calls missing is an entity of another kind, name that kind.

    For example, nothing below a table or a model is an entity.
    """
    error = absent_from(reads, ends)
    if not isinstance(error, EntityNotFound) or error.missing is None:
        return error
    others = lookups_of(parse_path(error.missing), None)
    tried = {where.families[: len(others[0].names)] for where, _ in ends}
    others = [one for one in others if one.families not in tried]
    found = reads.resolve(others) if others else []
    kinds = [one.record.chain[-1].kind for one in found if one.record is not None]
    if not kinds:
        return error
    above = f"{error.missing} is a {' and a '.join(kinds)}"
    return EntityNotFound(
        error.path, f"{error.path} is not the path of an entity: {above}; correct the path, or give {error.missing}"
    )


def lookups_of(names: tuple[str, ...], kind: str | None) -> list[Lookup]:
    """Return the lookups of a path of these names, one for each family that it can lead to."""
    kinds: list[Kind] = list(KINDS.values()) if kind is None else [KINDS[kind]]
    return [Lookup(f, names) for f in dict.fromkeys(families_of(one, len(names)) for one in kinds) if f is not None]


def found_at(names: tuple[str, ...], resolved: list[Resolved], kind: str | None) -> Record | None:
    """Return the entity of a kind (None: any) that a path led to, or None. Raises InvalidArgument if several do."""
    records = [one.record for one in resolved if one.record is not None]
    kinds = [record.chain[-1].kind for record in records]
    if len(kinds) > 1:
        path, *_ = format_path(names), kinds
        which = " and a ".join(kinds)
        raise InvalidArgument(f"{path} is a {which}; say which one: kind={kinds[0]!r}")
    return records[0] if records and kind in (None, kinds[0]) else None
