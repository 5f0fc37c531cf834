"""Bring a store that has an earlier import up to date: follow the renames, moves and removals in Gravitino.

The rest of the file is then imported as any other export. Entities that no import made stay as they are. They stay even
if they get the name of an imported entity meanwhile, because each write names an id. Entities that exist in Gravitino
but cannot be read stay, too. Each write requires the lease of the import.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from metastore.errors import DropPending, EntityAlreadyExists, EntityNotFound, LeaseLost, MetastoreError, NotEmpty
from metastore.imports.gravitino.groups import SYSTEM_NAME
from metastore.imports.gravitino.lines import Seen
from metastore.imports.gravitino.report import Report
from metastore.imports.gravitino.target import Contents, Owned, Related, contents_of_store
from metastore.imports.gravitino.values import Key
from metastore.kinds.origin import ORIGIN
from metastore.kinds.registry import OWNED_KINDS, kind_named
from metastore.managers.owned import OwnedManager
from metastore.names import format_path

if TYPE_CHECKING:
    from metastore.leases.lease import Lease
    from metastore.store import Store

__all__ = [
    "check_drops",
    "detach_the_gone",
    "drop_the_gone",
    "enabled_to_write",
    "rename_the_moved",
    "without_copies",
]

Names = tuple[str, ...]


def drop_the_gone(store: Store, lease: Lease, source: Contents, target: Contents, seen: Seen, report: Report) -> None:
    """Drop imported entities that are gone in Gravitino, the deepest first, so that no drop takes others with it."""
    gone = [key for key in target.names if key not in source.names and key not in seen.left]
    for key in sorted(gone, key=lambda key: len(target.names[key]), reverse=True):
        entity = _standing(store, key, target.names.pop(key), target)
        if entity is None:
            continue
        try:
            report.removed += bool(_manager(store, key).drop(entity, lease=lease))
        except NotEmpty as error:
            seen.left.add(key)  # the comparison at the end leaves this entity out
            report.find("kept", f"{key[0]} {key[1]} is gone there: {error}", "kept with the rows that were made here")


def without_copies(store: Store, lease: Lease, target: Contents) -> Contents:
    """Remove the origin from copies that people made here, so that they count as made here; return the new contents."""
    if not target.copies:
        return target
    for row_id, (kind, names) in target.copies.items():
        try:
            entity = store.manager(kind).load(names)
            if entity.id == row_id:
                rows: OwnedManager[Any] = OwnedManager(store._session, ORIGIN, kind_named(kind))  # noqa: SLF001  (no store has one)
                rows.put_many(entity, (), [SYSTEM_NAME], lease=lease)
        except LeaseLost:
            raise
        except MetastoreError:
            continue  # such as a copy that was moved or dropped meanwhile
    return contents_of_store(store, store.metalakes.names(), columns=True)


def check_drops(store: Store) -> None:
    """Raise DropPending if an imported entity, or a container, is being dropped in steps: it may come back."""
    backend = store._session.backend  # noqa: SLF001  (no manager shows what is being dropped)
    for drop in store.drops.pending():
        (origin,) = backend.owned_by_name([drop.entity_id], ORIGIN.name, [SYSTEM_NAME])
        if (origin is not None and drop.partition is None) or kind_named(drop.kind).container:
            raise DropPending(drop.operation, path=drop.path)


@contextmanager
def enabled_to_write(store: Store, lease: Lease, source: Contents, target: Contents) -> Iterator[None]:
    """Enable each disabled metalake and catalog below which something differs, so that it can be written.

    At the end, it disables again those that are disabled in Gravitino; after an error, it disables all of them again.
    An import that was killed, or lost its lease, leaves them enabled until it is repeated.
    """
    opened: list[Key] = []
    try:
        for kind in ("metalake", "catalog"):
            for key in [key for key in target.disabled if key[0] == kind and key in source.names]:
                differs = source.below.get(source.names[key]) != target.below.get(target.names[key])
                if differs and (entity := _standing(store, key, target.names[key], target)) is not None:
                    opened.append(key)
                    _manager(store, key).enable(entity, lease=lease)
        yield
    except BaseException:
        _disable(store, lease, opened, target, target)
        raise
    _disable(store, lease, [key for key in opened if key in source.disabled], source, target)


def _disable(store: Store, lease: Lease, keys: list[Key], contents: Contents, target: Contents) -> None:
    for key in reversed(keys):
        with suppress(MetastoreError):  # the entity was dropped meanwhile, or stays enabled until the next import
            if (entity := _standing(store, key, contents.names[key], target)) is not None:
                _manager(store, key).disable(entity, lease=lease)


def _manager(store: Store, key: Key) -> Any:
    return store.manager(key[0])


def _standing(store: Store, key: Key, names: Names, target: Contents) -> Any:
    """Return the imported entity at a place; None if it is not there any longer."""
    try:
        entity: Any = _manager(store, key).load(names)
    except EntityNotFound:
        return None
    return entity if entity.id == target.ids[key] else None


def rename_the_moved(store: Store, lease: Lease, source: Contents, target: Contents, report: Report) -> None:
    """Rename and move the entities that were renamed or moved in Gravitino, parents before children."""
    for key, wanted in source.names.items():
        now = target.names.get(key)
        if now is None or now == wanted:
            continue
        _free(store, lease, key, wanted, target, report)
        _manager(store, key).rename(_of_import(store, key, now, target), wanted, lease=lease)
        report.renamed += 1
        _note(key, now, wanted, target)


def _free(store: Store, lease: Lease, key: Key, wanted: Names, target: Contents, report: Report) -> None:
    """Give an imported entity that has the new name a temporary one. Raises EntityAlreadyExists for other entities."""
    family = ("table", "view") if key[0] in ("table", "view") else (key[0],)
    for other, names in list(target.names.items()):
        if names == wanted and other[0] in family and other != key:
            aside = (*wanted[:-1], f"{wanted[-1]}~{other[1]}")
            _manager(store, other).rename(_of_import(store, other, names, target), aside, lease=lease)
            _note(other, names, aside, target)
            return
    if _manager(store, key).exists(wanted):
        report.find(
            "taken", f"{key[0]} {format_path(wanted)} ({key[1]}): the store has another one of this name", "refused"
        )
        raise EntityAlreadyExists(
            format_path(wanted), f"{format_path(wanted)} was not imported, but the import needs its name; rename it"
        )


def _of_import(store: Store, key: Key, names: Names, target: Contents) -> Any:
    """Return the imported entity at a place. Raises EntityNotFound."""
    entity = _standing(store, key, names, target)
    if entity is None:
        path = format_path(names)
        raise EntityNotFound(path, f"{path} was renamed, moved or dropped here while the import ran; import again")
    return entity


def _note(key: Key, before: Names, after: Names, target: Contents) -> None:
    """Note the new place of an entity, and of everything below it."""
    target.names[key] = after
    depth = len(before)
    for other, names in target.names.items():
        if len(names) > depth and names[:depth] == before and key[0] in ("metalake", "catalog", "schema"):
            target.names[other] = (*after, *names[depth:])


def detach_the_gone(store: Store, lease: Lease, source: Contents, target: Contents, seen: Seen, report: Report) -> None:
    """Remove rows and relations of imported entities that are gone in Gravitino; those of new entities stay."""
    for one in target.owned - source.owned:
        if one.owner in source.names:
            owner = _standing(store, one.owner, source.names[one.owner], target)
            report.removed += owner is not None and _remove(store, lease, one, owner)
    left = {(key[0], target.names[key]) for key in seen.left if key in target.names}
    for related in target.related - source.related:
        known = related.owner not in seen.unsure and (related.to_kind, related.to) not in left
        if related.owner in source.names and known:
            owner = _standing(store, related.owner, source.names[related.owner], target)
            report.removed += owner is not None and _detach(store, lease, related, owner)


def _remove(store: Store, lease: Lease, one: Owned, owner: Any) -> bool:
    if one.kind == "model_version":
        return store.models.drop_version(owner, int(one.name), lease=lease)
    if one.kind == "statistic":
        return store.statistics.remove(owner, [one.name], lease=lease) > 0
    if one.kind == "partition":
        return store.partitions.drop(owner, one.name, lease=lease)
    if one.kind == "partition_statistic":
        rows: OwnedManager[Any] = OwnedManager(store._session, OWNED_KINDS[one.kind], kind_named(owner.kind))  # noqa: SLF001  (no manager removes a whole row)
        rows.put_many(owner, (), [one.name], lease=lease)
        return True
    return False  # an origin is dropped with its entity


def _detach(store: Store, lease: Lease, one: Related, owner: Any) -> bool:
    if one.kind == "owner" and store.owners.of(owner) is None:
        return False
    relation: Any = store.relations(one.kind)
    other = store.manager(one.to_kind).load(one.to)
    column = None if one.column is None else format_path(one.column)
    return bool(relation.detach(owner, other, value=one.value or None, column=column, lease=lease))
