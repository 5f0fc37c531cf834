"""The managers of the built-in kinds, with the typed arguments of their ``create``.

The keywords of each ``create`` are the fields that the class of its entities declares, with the same defaults: a test
compares them. ``create`` passes its ``locals()`` on, so that no field is named a third time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Unpack

from metastore.columns.column import Column
from metastore.kinds.catalog import Catalog
from metastore.kinds.fileset import Fileset
from metastore.kinds.function.document import Definition
from metastore.kinds.function.kind import Function
from metastore.kinds.job.run import CancelJob, Job
from metastore.kinds.job.template import JobTemplate
from metastore.kinds.metalake import Metalake
from metastore.kinds.schema import Schema
from metastore.kinds.table.kind import Table
from metastore.kinds.table.layout import Index
from metastore.kinds.topic import Topic
from metastore.kinds.view.document import SQL
from metastore.kinds.view.kind import View
from metastore.managers.attempts import exclusive
from metastore.managers.manager import Manager
from metastore.managers.mutation import actor_of
from metastore.managers.options import CallOptions, CreateOptions, call_of, shows_options
from metastore.managers.reader import E
from metastore.managers.target import Target
from metastore.names import Path

_NO_PAIRS: Mapping[str, str] = MappingProxyType({})
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Disableable(Manager[E]):
    """A manager whose entities can be disabled; below a disabled entity, writes are refused."""

    @shows_options(CallOptions)
    def enable(self, target: Target, **options: Unpack[CallOptions]) -> E:
        """Allow writes below the entity again; return it."""
        return self._set_in_use(target, True, options)

    @shows_options(CallOptions)
    def disable(self, target: Target, **options: Unpack[CallOptions]) -> E:
        """Refuse all writes below the entity with NotInUse, including those in flight; return it."""
        return self._set_in_use(target, False, options)

    def _set_in_use(self, target: Target, in_use: bool, options: CallOptions) -> E:
        call = call_of(options)
        actor = actor_of(self._session, call)
        return self._changed(
            "enable" if in_use else "disable",
            target,
            lambda view: exclusive.set_in_use(view, self._kind, target, in_use, actor),
            call,
        )


class Metalakes(Disableable[Metalake]):
    """Metalakes."""

    @shows_options(CreateOptions)
    def create(self, path: Path, **options: Unpack[CreateOptions]) -> Metalake:
        """Create a metalake. Raises EntityAlreadyExists, InvalidArgument."""
        return self._create(path, {}, options)


class Catalogs(Disableable[Catalog]):
    """Catalogs."""

    @shows_options(CreateOptions)
    def create(
        self,
        path: Path,
        *,
        type: str,
        provider: str | None = None,
        fold_case: bool = False,
        **options: Unpack[CreateOptions],
    ) -> Catalog:
        """Create a catalog. With ``fold_case`` the names below it are compared without case."""
        return self._create(path, self._own(locals()), options)


class Schemas(Manager[Schema]):
    """Schemas."""

    @shows_options(CreateOptions)
    def create(self, path: Path, **options: Unpack[CreateOptions]) -> Schema:
        """Create a schema. Raises EntityAlreadyExists, EntityNotFound, InvalidArgument, NotInUse."""
        return self._create(path, {}, options)


class Tables(Manager[Table]):
    """Tables."""

    @shows_options(CreateOptions)
    def create(
        self,
        path: Path,
        *,
        columns: Iterable[Column] = (),
        partitioning: Iterable[str] = (),
        distribution: str | None = None,
        sort_orders: Iterable[str] = (),
        indexes: Iterable[Index] = (),
        location: str | None = None,
        format: str | None = None,
        **options: Unpack[CreateOptions],
    ) -> Table:
        """Create a table. Raises EntityAlreadyExists, EntityNotFound, InvalidArgument, NotInUse."""
        return self._create(path, self._own(locals()), options)


class Filesets(Manager[Fileset]):
    """Filesets."""

    @shows_options(CreateOptions)
    def create(
        self,
        path: Path,
        *,
        type: str = "managed",
        locations: Mapping[str, str] = _NO_PAIRS,
        **options: Unpack[CreateOptions],
    ) -> Fileset:
        """Create a fileset. Raises EntityAlreadyExists, EntityNotFound, InvalidArgument, NotInUse."""
        return self._create(path, self._own(locals()), options)


class Views(Manager[View]):
    """Views."""

    @shows_options(CreateOptions)
    def create(
        self,
        path: Path,
        *,
        columns: Iterable[Column] = (),
        representations: Iterable[SQL] = (),
        default_catalog: str | None = None,
        default_schema: str | None = None,
        **options: Unpack[CreateOptions],
    ) -> View:
        """Create a view. Raises EntityAlreadyExists (a table of this name too), EntityNotFound, NotInUse."""
        return self._create(path, self._own(locals()), options)


class Topics(Manager[Topic]):
    """Topics."""

    @shows_options(CreateOptions)
    def create(self, path: Path, **options: Unpack[CreateOptions]) -> Topic:
        """Create a topic. Raises EntityAlreadyExists, EntityNotFound, InvalidArgument, NotInUse."""
        return self._create(path, {}, options)


class Functions(Manager[Function]):
    """Functions."""

    @shows_options(CreateOptions)
    def create(
        self,
        path: Path,
        *,
        definitions: Iterable[Definition] = (),
        deterministic: bool = False,
        type: str = "scalar",
        **options: Unpack[CreateOptions],
    ) -> Function:
        """Create a function. Raises EntityAlreadyExists, EntityNotFound, InvalidArgument, NotInUse."""
        return self._create(path, self._own(locals()), options)


class JobTemplates(Manager[JobTemplate]):
    """Job templates. :mod:`metastore.jobs` fills them in."""

    @shows_options(CreateOptions)
    def create(
        self,
        path: Path,
        *,
        type: str,
        executable: str,
        arguments: Iterable[str] = (),
        environments: Mapping[str, str] = _NO_PAIRS,
        custom_fields: Mapping[str, str] = _NO_PAIRS,
        scripts: Iterable[str] = (),
        class_name: str | None = None,
        jars: Iterable[str] = (),
        files: Iterable[str] = (),
        archives: Iterable[str] = (),
        configs: Mapping[str, str] = _NO_PAIRS,
        **options: Unpack[CreateOptions],
    ) -> JobTemplate:
        """Create a job template. Raises EntityAlreadyExists, EntityNotFound, InvalidArgument, NotInUse."""
        return self._create(path, self._own(locals()), options)


class Jobs(Manager[Job]):
    """Jobs. ``metastore.jobs.submit(store, template, conf)`` makes a job from a template. A worker runs the job."""

    @shows_options(CreateOptions)
    def create(
        self,
        path: Path,
        *,
        template: str,
        type: str = "shell",
        command: Mapping[str, Any] = _NOTHING,
        conf: Mapping[str, Any] = _NOTHING,
        status: str = "queued",
        started_at: int | None = None,
        finished_at: int | None = None,
        execution_id: str | None = None,
        home: str | None = None,
        **options: Unpack[CreateOptions],
    ) -> Job:
        """Create a job in the given state. Raises EntityAlreadyExists, EntityNotFound, InvalidArgument, NotInUse."""
        return self._create(path, self._own(locals()), options)

    @shows_options(CallOptions)
    def cancel(self, target: Target, **options: Unpack[CallOptions]) -> Job:
        """Cancel a job, unless it has ended; return it. A running job is ``cancelling`` until its worker ends it."""
        return self.alter(target, CancelJob(self._session.clock.micros()), **options)
