"""The managers of job templates and jobs. :mod:`metastore.jobs` fills templates in and runs jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Unpack

from metastore.kinds.job.run import CancelJob, Job
from metastore.kinds.job.template import JobTemplate
from metastore.managers.manager import Manager
from metastore.managers.options import CallOptions, CreateOptions, shows_options
from metastore.managers.target import Target
from metastore.names import Path

_NO_PAIRS: Mapping[str, str] = MappingProxyType({})
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class JobTemplates(Manager[JobTemplate]):
    """Job templates."""

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
