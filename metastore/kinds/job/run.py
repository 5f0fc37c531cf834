"""The job: one run of a template, with the filled-in command and its progress.

    queued ─▶ started ─▶ succeeded | failed
       │         └─────▶ cancelling ─▶ cancelled
       └───────────────▶ cancelled

The worker's name and token say who runs a job. The token comes from the worker's lease, and grows with each
acquisition. So if a worker has lost its lease, its writes are refused: the job has another worker, or a greater token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

from metastore.arguments import positive_integer, shown
from metastore.errors import InvalidArgument, VersionConflict
from metastore.kinds.change import Doc, EntityChange
from metastore.kinds.entity import Entity
from metastore.kinds.field import doc_field
from metastore.kinds.job.template import clean_parts, clean_type
from metastore.kinds.json_object import clean_json_object
from metastore.kinds.kind import COMMON_CHANGES, MAX_DOC, Kind, to_json
from metastore.names import clean_text, format_path
from metastore.plain import read_only

__all__ = ["ENDED", "JOB", "JOB_STATES", "MAX_OUTPUT", "CancelJob", "FinishJob", "Job", "StartJob"]

ENDED: Final = ("succeeded", "failed", "cancelled")
JOB_STATES: Final = ("queued", "started", "cancelling", *ENDED)
MAX_OUTPUT: Final = 1 << 16
"""How many characters of a job's output are kept, from its end."""
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

_clean_conf = partial(clean_json_object, what="a job's configuration")


def _clean_status(status: Any) -> str:
    if status not in JOB_STATES:
        raise InvalidArgument(f"a job's status is one of {', '.join(JOB_STATES)}, not {shown(status)}")
    return str(status)


def _clean_text(value: Any) -> str | None:
    return None if value is None else clean_text(value, "a job's field")


def _clean_micros(value: Any) -> int | None:
    return None if value is None else positive_integer(value, "a time in microseconds", least=0)


def _clean_number(value: Any) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise InvalidArgument(f"a number of a job is an integer, not {shown(value)}")
    return value


def _further(new: str, old: str) -> str:
    """Return the later of two states of a job. The state of a job that has ended stays."""
    return new if old not in ENDED and JOB_STATES.index(new) > JOB_STATES.index(old) else old


def _there(new: Any, old: Any) -> Any:
    """Return the present value, or the new one if the present value is None or empty."""
    return new if old in (None, "") else old


class Job(Entity):
    """A run. Times are microseconds since 1970; ``exit_code`` is 128 + n if the signal n ended it.

    An import over an existing job never takes back progress: a job that has ended does not run again.
    """

    template: str = doc_field(partial(clean_text, what="a template's name"))
    type: Literal["shell", "spark"] = doc_field(clean_type, default="shell", fixed=True)
    command: Mapping[str, Any] = doc_field(clean_parts, default=_NOTHING, decode=read_only)
    """The parts of the template with its placeholders replaced."""
    conf: Mapping[str, Any] = doc_field(_clean_conf, default=_NOTHING, decode=read_only)
    """The values of the placeholders."""
    status: str = doc_field(_clean_status, default="queued", joined=_further)
    started_at: int | None = doc_field(_clean_micros, default=None, joined=_there)
    finished_at: int | None = doc_field(_clean_micros, default=None, joined=_there)
    execution_id: str | None = doc_field(_clean_text, default=None)
    """The id that another system gave to an imported job."""
    exit_code: int | None = doc_field(_clean_number, default=None, given=False, joined=_there)
    output: str = doc_field(default="", given=False, joined=_there)
    """The end of its output, and why it failed."""
    worker: str | None = doc_field(_clean_text, default=None, given=False, joined=_there)
    token: int | None = doc_field(_clean_number, default=None, given=False, joined=_there)
    attempts: int = doc_field(default=0, given=False, joined=max)
    """How often a worker started the job: more than once if a worker died."""
    home: str | None = doc_field(_clean_text, default=None, later=True, joined=_there)
    """The database and the metalake that run the job: a copy elsewhere is not run. None: any database may run it."""


@dataclass(frozen=True)
class StartJob(EntityChange):
    """A worker begins a queued job, or takes over one that ``dead_worker`` had begun under ``dead_token``.

    ``home``: the job's home from now on; None: the job keeps its home.

    Raises VersionConflict if the job has ended, or another worker runs it by now.
    """

    worker: str
    token: int
    at: int
    dead_worker: str | None = field(default=None, kw_only=True)
    dead_token: int | None = field(default=None, kw_only=True)
    home: str | None = field(default=None, kw_only=True)
    since: ClassVar[int] = 4

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        queued = doc["status"] == "queued"
        standing = (None, None) if queued else (doc["worker"], doc["token"])
        if doc["status"] in ENDED or standing != (self.dead_worker, self.dead_token):
            raise _not_yours(doc, path, self.worker)
        status = "cancelling" if doc["status"] == "cancelling" else "started"
        doc.update(status=status, worker=self.worker, token=self.token, started_at=self.at)
        doc["attempts"] += 1
        if self.home is not None:
            doc["home"] = self.home


@dataclass(frozen=True)
class FinishJob(EntityChange):
    """A worker says how its job ended. Raises VersionConflict if another worker has the job by now."""

    worker: str
    token: int
    at: int
    status: str
    exit_code: int | None = None
    output: str = ""
    since: ClassVar[int] = 4

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        if doc["status"] in ENDED or (doc["worker"], doc["token"]) != (self.worker, self.token):
            raise _not_yours(doc, path, self.worker)
        if _clean_status(self.status) not in ENDED:
            raise InvalidArgument(f"a job ends with one of {', '.join(ENDED)}, not {shown(self.status)}")
        doc.update(status=self.status, finished_at=self.at, exit_code=self.exit_code)
        doc["output"] = clean_text(self.output, "a job's output")[-MAX_OUTPUT:]
        while doc["output"] and len(to_json(doc)) > MAX_DOC:  # the output gets less room if the command is long
            doc["output"] = doc["output"][len(doc["output"]) // 2 + 1 :]


@dataclass(frozen=True)
class CancelJob(EntityChange):
    """Cancel a job: a queued job at once, a started job as soon as its worker has stopped it.

    Any other job is left unchanged.
    """

    at: int
    since: ClassVar[int] = 4
    measured: ClassVar[frozenset[str]] = frozenset({"at"})

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        if doc["status"] == "queued":
            doc.update(status="cancelled", finished_at=self.at)
        elif doc["status"] == "started":
            doc["status"] = "cancelling"


def _not_yours(doc: Doc, path: tuple[str, ...], worker: str) -> VersionConflict:
    where, now = format_path(path), f"{doc['status']} by {doc['worker'] or 'no worker'}"
    message = f"the job {where} is {now}, and no longer for {worker} to change; leave it to its worker"
    return VersionConflict(where, worker, doc["worker"], message)


_CHANGES = (*COMMON_CHANGES, StartJob, FinishJob, CancelJob)
JOB = Kind("job", "job", ("metalake",), Job, _CHANGES, since=4, stays=True)
