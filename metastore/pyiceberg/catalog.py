"""The catalog that PyIceberg loads: the store's schemas are its namespaces, and it has the store's tables and views."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import LOCATION, URI, PropertiesUpdateSummary
from pyiceberg.catalog import MetastoreCatalog as _PyIcebergBase
from pyiceberg.exceptions import ForbiddenError, NoSuchPropertyException
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import AssertCreate, TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.view import View
from pyiceberg.view.metadata import ViewVersion

from metastore.pyiceberg.attempts import TableCommit, TableCreation
from metastore.pyiceberg.commits import Commits, answer
from metastore.pyiceberg.layouts import check_layout, format_version
from metastore.pyiceberg.namespaces import Namespaces
from metastore.pyiceberg.naming import errors_of_iceberg, namespace_names, parts, property_texts, table_names
from metastore.pyiceberg.neighbours import Neighbours
from metastore.pyiceberg.once import Once
from metastore.pyiceberg.opening import migrated, opened
from metastore.pyiceberg.places import Places, check_own, check_own_metadata
from metastore.pyiceberg.rights import is_of_user, user_of
from metastore.pyiceberg.sharing import shared
from metastore.pyiceberg.tables import Loader, Tables, taken_raises
from metastore.pyiceberg.updates import created
from metastore.pyiceberg.view_updates import ViewRequirement, ViewUpdate
from metastore.pyiceberg.views import Views, new_view_metadata

if TYPE_CHECKING:
    import pyarrow as pa

    from metastore.leases.leases import Leases
    from metastore.store import Store

__all__ = ["MetastoreCatalog"]

_METALAKE = "metalake"
_CATALOG = "catalog"


class MetastoreCatalog(_PyIcebergBase):
    """An Iceberg catalog in a store, for PyIceberg.

    Properties: ``uri`` (of the store), ``warehouse`` (the place of tables without a location), ``metalake`` (default
    ``lake``) and ``catalog`` (default: the catalog's name); the metalake and the catalog are created if they are
    missing. All others go to PyIceberg's file systems. A new database gets its schema.

    A commit that only appends never fails because of other commits: it is rebased. Any other commit with a false
    requirement raises CommitFailedException at once.
    """

    def __init__(self, name: str, **properties: str) -> None:
        """Open the store. Raises NoSuchPropertyException without ``uri``, ValueError for a wrong property."""
        super().__init__(name, **properties)
        uri = self.properties.get(URI)
        if not uri:
            raise NoSuchPropertyException("the URI of the store is required: uri=sqlite:///… or postgresql+psycopg://…")
        with errors_of_iceberg():
            root = (self.properties.get(_METALAKE, "lake"), self.properties.get(_CATALOG, name))
            store = opened(uri)
            places = Places(self.properties, trusting=True)
            self._stand_on(store, root, Once(store), None, places, Neighbours(store), merging=True)
            self._make_root()

    @classmethod
    def of_store(
        cls,
        store: Store,
        root: tuple[str, str],
        properties: Properties,
        once: Once | None = None,
        leases: Leases | None = None,
        neighbours: Neighbours | None = None,
        *,
        allowed: Iterable[str] = (),
        merging: bool = False,
        of_users: bool = False,
    ) -> MetastoreCatalog:
        """Return the catalog ``root`` (metalake, catalog) of an open store, for a server. It reads and creates nothing.

        ``once``: the idempotency key of the only request that uses this catalog. ``leases``: the leases under which
        commits that lost wait in line; a user's store has no leases of its own. ``neighbours``: those of the whole
        store. ``allowed``: folders besides the warehouse where files may lie. ``merging``: appends are rebased although
        a requirement is false. ``of_users``: users whose rights are checked write to the warehouse, too. A table's
        properties cannot name code or endpoints here.
        """
        catalog = cls.__new__(cls)
        _PyIcebergBase.__init__(catalog, root[1], **properties)
        places = Places(properties, trusting=False, allowed=allowed, of_users=of_users or is_of_user(store))
        around = neighbours or Neighbours(store)
        catalog._stand_on(store, root, once or Once(store), leases, places, around, merging=merging)  # noqa: SLF001  (this class)
        return catalog

    def _stand_on(
        self,
        store: Store,
        root: tuple[str, str],
        once: Once,
        leases: Leases | None,
        places: Places,
        neighbours: Neighbours,
        *,
        merging: bool,
    ) -> None:
        self._neighbours = neighbours
        self._store = store
        self._root = root
        self._once = once
        self._namespaces = Namespaces(store, root, once)
        self._places = places
        self._tables = Tables(store, root, self._namespaces, self._places, once, neighbours)
        self._io = self._places.io
        self._views = Views(store, root, self._places, once)
        line = store.leases if leases is None else leases
        self._commits = Commits(store, line, self._places, once, neighbours, merging=merging)

    def create_tables(self) -> None:
        """Create or upgrade the store's tables. PyIceberg calls this where its SQL catalog would create its own."""
        migrated(self.properties[URI])

    def _make_root(self) -> None:
        self._store.metalakes.create((self._root[0],), if_exists="return")
        self._store.catalogs.create(self._root, type="relational", if_exists="return")

    @property
    def reach(self) -> str:
        """A text that two catalogs share if both may read the same files under the same locations."""
        return self._places.reach

    @property
    def store(self) -> Store:
        """The store, for everything that PyIceberg does not have: tags, history, the change feed."""
        return self._store

    def close(self) -> None:
        """Close the store's connections."""
        self._store.close()

    # Namespaces

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        """Create a namespace, and those above it that are missing. Raises NamespaceAlreadyExistsError, ValueError."""
        names, texts = namespace_names(namespace), property_texts(properties)
        if is_of_user(self._store):
            self._places.check_namespace(names, texts.get(LOCATION))
        self._namespaces.create(names, texts)

    def drop_namespace(self, namespace: str | Identifier) -> None:
        """Drop an empty namespace. Raises NoSuchNamespaceError, NamespaceNotEmptyError."""
        self._namespaces.drop(namespace_names(namespace))

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """Return the namespaces directly below one, or at the top. Raises NoSuchNamespaceError."""
        return self._namespaces.all(namespace_names(namespace) if namespace else ())

    def namespaces_page(
        self, namespace: Identifier, size: int | None, token: str | None
    ) -> tuple[list[Identifier], str | None]:
        """Return one page of ``list_namespaces``, and the token of the next page; without a size, all of them."""
        return self._namespaces.page(namespace_names(namespace) if namespace else (), size, token)

    def namespace_exists(self, namespace: str | Identifier) -> bool:
        """Whether a namespace exists."""
        return self._namespaces.exists(namespace_names(namespace))

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        """Return a namespace's properties. Raises NoSuchNamespaceError."""
        return self._namespaces.properties(namespace_names(namespace))

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Properties = EMPTY_DICT
    ) -> PropertiesUpdateSummary:
        """Remove and set properties of a namespace; other properties keep the values that others set meanwhile.

        Raises NoSuchNamespaceError; ValueError if a key is removed and set.
        """
        self._check_for_overlap(removals, updates)
        names, texts = namespace_names(namespace), property_texts(updates)
        place = texts.get(LOCATION)
        if place and is_of_user(self._store) and place != self._namespaces.properties(names).get(LOCATION):
            self._places.check_namespace(names, place)
        return self._namespaces.update(names, removals or set(), texts)

    # Tables

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Create a table. Raises TableAlreadyExistsError, NoSuchNamespaceError, ValueError."""

        def attempt(options: dict[str, Any]) -> Table:
            self._tables.require_right(table_names(identifier))
            staged = self._staged(identifier, schema, location, partition_spec, sort_order, properties, held=False)
            if location:
                options = options | self._take(staged.name(), location)
            self._tables.create(staged.name(), staged.metadata, staged.metadata_location, options)
            return self._table(staged.name(), staged.metadata, staged.metadata_location)

        return self._once.run(attempt, lambda: self.load_table(identifier))

    def stage_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> StagedTable:
        """Return a new table that is not written yet. Raises NoSuchNamespaceError.

        A server also raises the errors of the creation: TableAlreadyExistsError, ForbiddenError. Otherwise a client
        would see these errors only after it has written all files of the table.
        """
        if self._places.serves:
            self._tables.try_create(table_names(identifier))
        return self._staged(identifier, schema, location, partition_spec, sort_order, properties)

    def _staged(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None,
        partition_spec: PartitionSpec,
        sort_order: SortOrder,
        properties: Properties,
        *,
        held: bool = True,
    ) -> StagedTable:
        names = table_names(identifier)
        converted = self._convert_schema_if_needed(schema, format_version(properties))
        place = self._location(names, location, held=held)
        if is_of_user(self._store):
            check_own(place, properties)
        made = new_table_metadata(
            location=place,
            schema=converted,
            partition_spec=partition_spec,
            sort_order=sort_order,
            properties=dict(properties),  # a copy, because PyIceberg removes the format version from the dictionary
        )
        metadata = shared(made)
        check_layout(metadata)
        file = self._places.locations(place, properties).new_table_metadata_file_location()
        return StagedTable(names, metadata, file, self._io(properties, file), self)

    def _create_staged_table(self, *arguments: Any) -> StagedTable:  # create_table_transaction calls this
        return self.stage_table(*arguments)

    def _location(self, names: Identifier, location: str | None, *, held: bool = False) -> str:
        """Return the location of a new table or view. Raises NoSuchNamespaceError, ValueError, ForbiddenError.

        ``held``: nothing is made at the location yet; the user names the folder later.
        """
        above, user = self._namespaces.properties(names[:-1]).get(LOCATION), user_of(self._store)
        if not location:
            return self._apart(names, self._places.default(names, above, user if held else None), check=bool(above))
        if user is not None:
            chosen = self._places.check_chosen(location, names, above, user)
            if held:  # the folder is not claimed yet, but the server may give out a key for it
                self._once.require_unused(chosen)
        return self._apart(names, location.rstrip("/"), check=user is None or bool(above))

    def _apart(self, names: Identifier, place: str, *, check: bool) -> str:
        """Return the place of a new table or view. A server may raise ForbiddenError.

        ``check``: an operator or a namespace chose the place, so the server checks whether it lies in the folder of
        another table, or around it.
        """
        if check and self._places.serves and self._shares(place):
            # report a taken name first: "create if not exists" names the folder of the existing table
            self._tables.try_create(names)
            raise ForbiddenError(f"{place[:200]!r} lies in the folder of another table, or around it; name another one")
        return place

    def _shares(self, place: str) -> bool:
        with errors_of_iceberg():
            return self._neighbours.has_around(place) or self._neighbours.are_more_than(0, place)

    def _take(self, names: Identifier, *places: str) -> dict[str, Any]:
        """Claim the folders that a user named for a new table or view. Return the options of the call that makes it.

        Raises ForbiddenError if a table or view was made in one of them before. That table may belong to another user
        by now, under another name.
        """
        if (user := user_of(self._store)) is None:
            return {}
        above = self._namespaces.properties(names[:-1]).get(LOCATION)
        return self._once.take(*[self._places.check_chosen(place, names, above, user) for place in places])

    def register_table(
        self,
        identifier: str | Identifier,
        metadata_location: str,
        overwrite: bool = False,
        *,
        replaces: str | None = None,
    ) -> Table:
        """Create a table from a metadata file; with ``overwrite``, give the file to an existing table.

        ``replaces``: the metadata file that this table must still have. Raises TableAlreadyExistsError,
        NoSuchNamespaceError, CommitFailedException; with ``replaces`` also NoSuchTableError.
        """
        names = table_names(identifier)

        def attempt(options: dict[str, Any]) -> Table:
            overwritten = overwrite and (replaces is not None or self.table_exists(names))
            self._tables.require_right(names, overwrite=overwritten)
            if not overwritten:
                self._check_registered(names, metadata_location)
            metadata = self._tables.register(
                names, metadata_location, options, overwrite=overwritten, replaces=replaces
            )
            return self._table(names, metadata, metadata_location)

        return self._once.run(attempt, lambda: self.load_table(names))

    def load_table(self, identifier: str | Identifier) -> Table:
        """Return a table. Raises NoSuchTableError; NoSuchIcebergTableError if it has another format."""
        names = parts(identifier)
        current = self._tables.current(names)
        return self._table(names, current.metadata, current.location)

    def table_exists(self, identifier: str | Identifier) -> bool:
        """Whether a table exists and is an Iceberg table."""
        return self._tables.exists(parts(identifier))

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """Return the Iceberg tables of a namespace. Raises NoSuchNamespaceError."""
        return self._tables.all(namespace_names(namespace))

    def tables_page(self, namespace: Identifier, size: int | None, token: str | None) -> tuple[list[str], str | None]:
        """Return the names of one page of ``list_tables``, and the token of the next page; without a size, all.

        A page may have fewer names than ``size``, because tables of other formats are left out.
        """
        return self._tables.page(namespace_names(namespace), size, token)

    def metadata_location(self, identifier: str | Identifier) -> str:
        """Return the location of a table's metadata file, without reading the file. Raises NoSuchTableError."""
        return self.pointer_and_place(identifier)[0]

    def pointer_and_place(self, identifier: str | Identifier) -> tuple[str, str | None]:
        """Return the locations of a table's metadata file and of the table, as the store has them. It reads no file."""
        return self._tables.pointer_and_place(parts(identifier))

    def drop_table(self, identifier: str | Identifier) -> None:
        """Drop a table; its files stay, and the store can restore it. Raises NoSuchTableError."""
        self._tables.drop(parts(identifier))

    def purge_table(self, identifier: str | Identifier) -> None:
        """Remove a table for good, then its files, unless another table may have them. Raises NoSuchTableError."""
        self._tables.purge(parts(identifier))

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        """Rename or move a table; its files stay where they are.

        Raises NoSuchTableError, NoSuchNamespaceError, TableAlreadyExistsError.
        """
        self.move_table(from_identifier, to_identifier)
        return self.load_table(to_identifier)

    def move_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> None:
        """Rename or move a table as ``rename_table`` does, but do not load it afterwards."""
        self._tables.move(parts(from_identifier), table_names(to_identifier))

    # Commits

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Apply updates to a table, or create a staged one.

        Raises CommitFailedException if a requirement fails and the commit is not an append (refresh the table, repeat),
        CommitStateUnknownException if the outcome is unknown (load the table to see), TableAlreadyExistsError,
        NoSuchTableError.
        """
        names = table.name()
        if any(isinstance(one, AssertCreate) for one in requirements) and not self.table_exists(names):
            return self.create_staged(names, requirements, updates)
        (response,) = self._committed([names], [self._wanted(names, requirements, updates, table.metadata)])
        return response

    def commit_tables(
        self, commits: Sequence[tuple[str | Identifier, tuple[TableRequirement, ...], tuple[TableUpdate, ...]]]
    ) -> list[CommitTableResponse]:
        """Commit to several tables at once: all commits happen, or none. Raises the errors of ``commit_table``.

        A commit with the requirement ``AssertCreate`` creates its table. Raises ValueError if a table is named twice.
        """
        names = [parts(identifier) for identifier, _, _ in commits]
        wanted = [self._wanted(name, commit[1], commit[2]) for name, commit in zip(names, commits, strict=True)]
        if len(set(names)) < len(wanted):
            raise ValueError("a table is named twice; put all of its requirements and updates into one change")
        return self._committed(names, wanted)

    def _committed(
        self, names: Sequence[Identifier], wanted: Sequence[TableCommit | TableCreation]
    ) -> list[CommitTableResponse]:
        with errors_of_iceberg(), taken_raises(*names):
            return self._commits.commit(wanted)

    def _wanted(
        self,
        names: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
        held: TableMetadata | None = None,
    ) -> TableCommit | TableCreation:
        load = Loader(self._tables, names)
        if not any(isinstance(one, AssertCreate) for one in requirements):
            return TableCommit(load, requirements, updates, held)

        def absent() -> None:
            metadata = load().metadata if self.table_exists(names) else None
            for requirement in requirements:
                requirement.validate(metadata)
            self._namespaces.require(names[:-1])
            self._tables.require_right(names)
            self._check_created(names, updates, wanted)

        wanted = created(self._empty_table_metadata(), updates)
        take = partial(self._take, names, wanted.location)
        return TableCreation(self._tables.path(names), load, absent, take, wanted)

    def create_staged(
        self, names: Identifier, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Create a table from updates. Raises TableAlreadyExistsError, NoSuchNamespaceError, CommitFailedException."""

        def attempt(options: dict[str, Any]) -> CommitTableResponse:
            for requirement in requirements:
                requirement.validate(None)
            self._tables.require_right(names)
            metadata = created(self._empty_table_metadata(), updates)
            self._check_created(names, updates, metadata)
            provider = self._places.locations(metadata.location, metadata.properties)
            location = provider.new_table_metadata_file_location()
            self._namespaces.require(names[:-1])
            options = options | self._take(names, metadata.location)
            self._tables.create(names, metadata, location, options)
            return answer(metadata, location)

        def again() -> CommitTableResponse:
            current = self._tables.current(names)
            return answer(current.metadata, current.location)

        return self._once.run(attempt, again)

    def _check_created(self, names: Identifier, updates: tuple[TableUpdate, ...], metadata: TableMetadata) -> None:
        """Check each location in the updates of a new table, before a file is touched.

        ``metadata``: the metadata that the updates make.
        """
        self._places.check_updates(updates)
        above, user = self._namespaces.properties(names[:-1]).get(LOCATION), user_of(self._store)
        if user is not None:
            self._places.check_chosen(metadata.location, names, above, user)
            check_own_metadata(metadata)
        # others may have made a table there since this one was staged
        self._apart(names, metadata.location.rstrip("/"), check=user is None or bool(above))

    # Views

    def create_view(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        view_version: ViewVersion,
        location: str | None = None,
        properties: Properties = EMPTY_DICT,
    ) -> View:
        """Create a view. Raises ViewAlreadyExistsError (also for a table of that name), NoSuchNamespaceError."""
        names = table_names(identifier)

        def attempt(options: dict[str, Any]) -> View:
            self._views.require_right(names)
            place = self._location(names, location)
            converted = self._convert_schema_if_needed(schema)
            metadata = new_view_metadata(place, converted, view_version, property_texts(properties))
            if location:
                options = options | self._take(names, location)
            return self._views.create(names, metadata, options)

        return self._once.run(attempt, lambda: self.load_view(names))

    def register_view(self, identifier: str | Identifier, metadata_location: str) -> View:
        """Create a view from its metadata file. Raises ViewAlreadyExistsError, NoSuchNamespaceError."""
        names = table_names(identifier)

        def attempt(options: dict[str, Any]) -> View:
            self._views.require_right(names)
            self._check_registered(names, metadata_location)
            metadata = self._views.read(metadata_location)
            self._places.check(metadata.location)
            self._check_registered(names, metadata.location)
            options = options | self._take(names, metadata_location, metadata.location)
            return self._views.register(names, metadata, metadata_location, options)

        return self._once.run(attempt, lambda: self.load_view(names))

    def _check_registered(self, names: Identifier, place: str) -> None:
        """Raise ForbiddenError if a user registers a file, or a location, that belongs to another table."""
        if is_of_user(self._store):
            self._location(names, place)

    def load_view(self, identifier: str | Identifier) -> View:
        """Return a view. Raises NoSuchViewError."""
        return self._views.load(parts(identifier))[0]

    def load_view_file(self, identifier: str | Identifier) -> tuple[View, str]:
        """Return a view, and the location of its metadata file. Raises NoSuchViewError."""
        return self._views.load(parts(identifier))

    def replace_view(
        self, identifier: str | Identifier, requirements: Sequence[ViewRequirement], updates: Sequence[ViewUpdate]
    ) -> tuple[View, str]:
        """Apply updates to a view; return the view and the location of its metadata file.

        Raises NoSuchViewError, CommitFailedException, ValueError.
        """
        return self._views.replace(parts(identifier), requirements, updates)

    def rename_view(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> None:
        """Rename or move a view. Raises NoSuchViewError, NoSuchNamespaceError, ViewAlreadyExistsError."""
        old, new = parts(from_identifier), table_names(to_identifier)

        def attempt(options: dict[str, Any]) -> None:
            self._namespaces.require(new[:-1])
            self._views.rename(old, new, options)

        self._once.run(attempt, lambda: None)

    def views_page(self, namespace: Identifier, size: int | None, token: str | None) -> tuple[list[str], str | None]:
        """Return the names of one page of ``list_views``, and the token of the next page; without a size, all."""
        return self._views.page(namespace_names(namespace), size, token)

    def view_exists(self, identifier: str | Identifier) -> bool:
        """Whether a view exists."""
        return self._views.exists(parts(identifier))

    def list_views(self, namespace: str | Identifier) -> list[Identifier]:
        """Return the views of a namespace. Raises NoSuchNamespaceError."""
        return self._views.all(namespace_names(namespace))

    def drop_view(self, identifier: str | Identifier) -> None:
        """Drop a view. Raises NoSuchViewError."""
        self._views.drop(parts(identifier))

    def _table(self, names: Identifier, metadata: TableMetadata, location: str) -> Table:
        return Table(names, metadata, location, self._io(metadata.properties, location), self)
