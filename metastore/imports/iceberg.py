"""Import any catalog of PyIceberg: its namespaces, tables and views, by their metadata files.

A table keeps its metadata file: both catalogs show the same snapshots, and no data moves. Repeat the import while other
programs still commit to the old catalog: it updates tables whose metadata file has changed. Commits and tables made
here stay: if both catalogs have committed to a table since the last import, the table is a failure. Needs the extra
[iceberg].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError

from metastore.errors import InvalidArgument, MetastoreError
from metastore.imports.counts import ImportCounts, Tell
from metastore.kinds.change import SetProperty
from metastore.names import Path, format_path, parse_path
from metastore.pyiceberg.catalog import MetastoreCatalog
from metastore.pyiceberg.entities import POINTER
from metastore.store import Store, open_store

__all__ = ["import_iceberg", "open_catalog"]

_READERS: Final = 8
"""How many tables are read at once: most of the time goes into waiting for their metadata files."""
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
    """Import all of ``source`` below ``into``, a catalog, which is created if missing. Else raises InvalidArgument."""
    root = parse_path(into)
    if len(root) != 2:
        raise InvalidArgument("an Iceberg catalog is imported into a catalog, such as lake.ice")
    outcome, tell = ImportCounts(), progress or (lambda _step, _share: None)
    with open_store(url, principal=_PRINCIPAL) as store:
        store.metalakes.create((root[0],), if_exists="return")
        store.catalogs.create(root, type="relational", provider="lakehouse-iceberg", if_exists="return")
        target = MetastoreCatalog.of_store(store, (root[0], root[1]), source.properties)
        wanted: list[tuple[str, Names]] = []
        for namespace in _namespaces(source):
            said = _properties(source, namespace)
            schema = store.schemas.create((*root, *namespace), properties=said, if_exists="return")
            if any(schema.properties.get(key) != value for key, value in said.items()):
                store.schemas.alter(schema, *[SetProperty(key, value) for key, value in said.items()])
            outcome.namespaces += 1
            wanted += [("table", tuple(one)) for one in source.list_tables(namespace)]
            wanted += [("view", tuple(one)) for one in _views(source, namespace)]
        with ThreadPoolExecutor(_READERS, "import-iceberg") as readers:
            done = readers.map(lambda one: _import(source, target, root, *one), wanted)
            for number, ((kind, names), result) in enumerate(zip(wanted, done, strict=True), 1):
                outcome.written += result is True
                outcome.left += result is False
                if isinstance(result, str):
                    outcome.failures.append(f"{kind} {format_path(names)}: {result}")
                tell("importing", number / len(wanted))
    return outcome


def _namespaces(source: Catalog, above: Names = ()) -> Iterator[Names]:
    """Yield all namespaces, each after the one above it."""
    for namespace in sorted(source.list_namespaces(above)):
        names = tuple(namespace)
        if len(names) == len(above) + 1:
            yield names
            yield from _namespaces(source, names)


def _properties(source: Catalog, namespace: Names) -> dict[str, str]:
    return {str(key): str(value) for key, value in source.load_namespace_properties(namespace).items()}


def _views(source: Catalog, namespace: Names) -> list[Any]:
    try:
        return list(source.list_views(namespace))
    except NotImplementedError:  # the source is a catalog without views
        return []


def _import(source: Catalog, target: MetastoreCatalog, root: Names, kind: str, names: Names) -> bool | str:
    """Import one table or view; return whether it was written, or why it could not be."""
    try:
        if kind == "view":
            if target.view_exists(names):
                return False
            target.register_view(names, _view_file(source, names))
            return True
        table = source.load_table(names)
        location = table.metadata_location
        try:
            here = target.metadata_location(names)
        except NoSuchTableError:
            here = None
        if here == location:
            return False
        if here is not None and here not in {one.metadata_file for one in table.metadata.metadata_log}:
            imported = _imported(target.store, (*root, *names))
            if here not in imported:  # another program has committed to it, or made it
                return False if location in imported else "it has changed here, and there too; it stays as it is here"
        target.register_table(names, location, overwrite=here is not None, replaces=here)
        return True
    except MetastoreError:
        raise
    except Exception as error:  # noqa: BLE001  (a damaged table is named, and stops nothing)
        return f"{type(error).__name__}: {error}"


def _imported(store: Store, path: Names) -> set[str]:
    """Return the metadata files that imports have given to the table that is here."""
    found, last = set[str](), None
    for version in store.tables.history(path):
        pointer = None if version.entity is None else version.entity.properties.get(POINTER)
        if pointer != last and version.principal == _PRINCIPAL:
            found.add(str(pointer))
        last = pointer
    return found


def _view_file(source: Catalog, names: Names) -> str:
    view: Any = source.load_view(names)
    location = getattr(view, "metadata_location", None)
    if location is None:
        raise NotImplementedError("this catalog does not say where the view's metadata file is")
    return str(location)
