"""Import any catalog of PyIceberg: its namespaces, tables and views, by their metadata files.

A table keeps its metadata file: both catalogs show the same snapshots, and no data moves. Repeat the import while other
programs still commit to the old catalog: it updates tables whose metadata file has changed. Changes that people made
here stay, including commits, drops and renames. If both catalogs have committed to a table since the last import, the
table is a failure. Needs the extra [iceberg].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)

from metastore.errors import EntityNotFound, InvalidArgument, MetastoreError
from metastore.imports.counts import ImportCounts, Tell
from metastore.imports.places import OF_ONE, Place, Places, is_another
from metastore.imports.root import open_root
from metastore.kinds.change import SetProperty
from metastore.kinds.entity import Entity
from metastore.leases.lease import Lease
from metastore.names import Path, format_path, parse_path
from metastore.pyiceberg.catalog import MetastoreCatalog
from metastore.pyiceberg.entities import POINTER
from metastore.pyiceberg.once import Once
from metastore.secrets.names import MASK, is_hidden
from metastore.store import Store, open_store
from metastore.transaction.transaction import Transaction
from metastore.transfer.walk import batched

__all__ = ["import_iceberg", "open_catalog"]

_BOTH: Final = "it was changed both here and in the other catalog; it stays unchanged here"
_READERS: Final = 8
"""How many tables are read at once: most of the time goes into waiting for their metadata files."""
_NOTED: Final = 200
"""How many tables are made before they are noted, in one commit."""
_PRINCIPAL: Final = "import iceberg"
Names = tuple[str, ...]


def open_catalog(source: str, properties: Mapping[str, str]) -> Catalog:
    """Open a catalog by its name in PyIceberg's configuration, or by its URI. Raises InvalidArgument if that fails.

    The property ``name`` is the catalog's name there: a SQL catalog shows only the tables under it.
    """
    given = {"uri": source, **properties} if "://" in source else dict(properties)
    name = given.pop("name", "source" if "://" in source else source)
    try:
        return load_catalog(name, **given)
    except Exception as error:
        raise InvalidArgument(f"the catalog cannot be opened by PyIceberg: {type(error).__name__}: {error}") from error


def import_iceberg(url: str | None, source: Catalog, into: Path, *, progress: Tell | None = None) -> ImportCounts:
    """Import all of ``source`` below the catalog ``into``, which is created if it is new, and found after a rename.

    Raises InvalidArgument; EntityNotFound if the catalog or metalake was dropped; LeaseHeld while another import runs.
    """
    root = parse_path(into)
    if len(root) != 2:
        raise InvalidArgument("an Iceberg catalog is imported into a catalog, such as lake.ice")
    outcome, tell = ImportCounts(), progress or (lambda _step, _share: None)
    fields = {"type": "relational", "provider": "lakehouse-iceberg"}
    with open_store(url, principal=_PRINCIPAL) as store, open_root(store, root, _PRINCIPAL, **fields) as opened:
        metalake, catalog = opened.entity.names
        once = _UnderLease(store, opened.lease)
        target = MetastoreCatalog.of_store(store, (metalake, catalog), source.properties, once)
        places = Places(store, opened, _PRINCIPAL)
        there: dict[str, list[Names]] = {"table": [], "view": []}
        for namespace in _namespaces(source):
            try:
                said = _properties(source, namespace)
                tables, views = source.list_tables(namespace), _views(source, namespace)
            except NoSuchNamespaceError:  # the namespace was just dropped in the source
                continue
            try:
                _import_namespace(store, places, (*root, *namespace), said, opened.lease)
            except OF_ONE as error:
                outcome.failures.append(f"schema {format_path(namespace)}: {error}")
            outcome.namespaces += 1
            there["table"] += [(*root, *one) for one in tables]
            there["view"] += [(*root, *one) for one in views]
        wanted = [(kind, *one) for kind, paths in there.items() for one in places.of(kind, paths).items()]
        done = 0
        with ThreadPoolExecutor(_READERS, "import-iceberg") as readers:
            for some in batched(wanted, _NOTED):
                results = readers.map(lambda one: _import(source, target, (metalake, catalog), *one), some)
                for (kind, (_, _, *names), _), result in zip(some, results, strict=True):
                    outcome.written += result is True
                    outcome.left += result is False
                    if isinstance(result, str):
                        outcome.failures.append(f"{kind} {format_path(names)}: {result}")
                    done += 1
                    tell("importing", done / len(wanted))
                for kind in there:
                    places.remember(kind, {path: place for of, path, place in some if of == kind})
    return outcome


class _UnderLease(Once):
    """The calls of an import: each commit requires the import's lease."""

    def __init__(self, store: Store, lease: Lease) -> None:
        super().__init__(store)
        self._lease = lease

    def begin(self) -> dict[str, Any]:
        """Return the options of each call."""
        return {"lease": self._lease}


def _namespaces(source: Catalog, above: Names = ()) -> Iterator[Names]:
    """Yield all namespaces, each after the one above it."""
    try:
        found = sorted(source.list_namespaces(above))
    except NoSuchNamespaceError:  # the namespace was just dropped in the source
        return
    for namespace in found:
        names = tuple(namespace)
        if len(names) == len(above) + 1:
            yield names
            yield from _namespaces(source, names)


def _properties(source: Catalog, namespace: Names) -> dict[str, str]:
    """Return the properties of a namespace, without the secrets for which the source shows a mask."""
    said = {str(key): str(value) for key, value in source.load_namespace_properties(namespace).items()}
    return {key: value for key, value in said.items() if value != MASK or not is_hidden(key)}


def _views(source: Catalog, namespace: Names) -> list[Any]:
    try:
        return list(source.list_views(namespace))
    except NotImplementedError:  # the source is a catalog without views
        return []


def _import_namespace(store: Store, places: Places, path: Names, said: dict[str, str], lease: Lease) -> None:
    """Make a schema, or update the properties that changed in the source; those that people changed here stay."""
    schema = places.container("schema", path, properties=said)
    if schema is None or schema.created_by != _PRINCIPAL:
        return
    if all(schema.properties.get(key) == value for key, value in said.items()):
        return

    def update(tx: Transaction) -> None:
        now, ours = tx.schemas.load(schema).properties, _imported_properties(store, schema)
        changed = [key for key, value in said.items() if now.get(key) == ours.get(key) != value]
        if changed:
            tx.schemas.alter(schema, *[SetProperty(key, said[key]) for key in changed])

    with suppress(EntityNotFound):  # the schema was dropped just now
        store.run(update, lease=lease)  # the commit validates what ``update`` read


def _imported_properties(store: Store, schema: Entity) -> dict[str, str | None]:
    """Return the properties that imports have given to a schema, with the values that they gave last."""
    given = dict[str, Any]()
    for version in store.schemas.history(schema):
        if version.principal == _PRINCIPAL and version.entity is not None:
            then: Mapping[str, Any] = version.entity.properties
            changed = {one.key for one in version.changes if isinstance(one, SetProperty)}
            given |= then if version.action == "create" else {key: then[key] for key in changed}
    return given


def _import(
    source: Catalog, target: MetastoreCatalog, here: Names, kind: str, path: Names, place: Place | None
) -> bool | str:
    """Import one table or view; return whether it was written, or why it could not be."""
    if place is None or place.path[:2] != here:  # people dropped the table or view, or moved it to another catalog
        return False
    try:
        place.require_free()
        if kind == "table":
            return _import_table(source, target, path, place)
        if place.known:
            return False
        target.register_view(place.path[2:], _view_file(source, path[2:]))
        return True
    except OF_ONE as error:
        return str(error)
    except MetastoreError:
        raise
    except Exception as error:  # noqa: BLE001  (a damaged table is named, and stops nothing)
        return f"{type(error).__name__}: {error}"


def _import_table(source: Catalog, target: MetastoreCatalog, path: Names, place: Place) -> bool | str:
    table, names = source.load_table(path[2:]), place.path[2:]
    location = table.metadata_location
    try:
        here = target.metadata_location(names)
    except NoSuchIcebergTableError:
        raise
    except NoSuchTableError:
        if place.known:  # people dropped or moved the table or view just now
            return False
        here = None
    if here == location:
        return False
    if here is not None:
        log = [*[one.metadata_file for one in table.metadata.metadata_log], location]
        pointers = _imported(target.store, place.path)
        if not _is_behind(here, log, pointers) or is_another(target.store, "table", place, path):
            return False if location in pointers else _BOTH
    try:
        target.register_table(names, location, overwrite=here is not None, replaces=here)
    except (TableAlreadyExistsError, CommitFailedException):
        if target.metadata_location(names) == location:  # another import was faster
            return False
        raise
    return True


def _is_behind(here: str, log: list[str], imported: list[str]) -> bool:
    """Whether nobody has committed to the table here, or rolled it back here, since the last import.

    ``log``: the oldest file first.
    """
    if imported and here == imported[-1]:
        return True
    return here in log and not (imported and imported[-1] in log[log.index(here) :])


def _imported(store: Store, path: Names) -> list[str]:
    """Return the metadata files that imports have given to the table here, oldest first."""
    found, last = list[str](), None
    for version in store.tables.history(path):
        pointer = None if version.entity is None else version.entity.properties.get(POINTER)
        if pointer != last and version.principal == _PRINCIPAL:
            found.append(str(pointer))
        last = pointer
    return found


def _view_file(source: Catalog, names: Names) -> str:
    view: Any = source.load_view(names)
    location = getattr(view, "metadata_location", None)
    if location is None:
        raise NotImplementedError("this catalog does not say where the view's metadata file is")
    return str(location)
