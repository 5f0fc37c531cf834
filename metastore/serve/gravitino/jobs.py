"""Job templates and jobs: register a command, run it, follow its progress, and cancel it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from metastore.errors import EntityNotFound
from metastore.jobs import has_unfinished, submit
from metastore.kinds.change import SetComment
from metastore.kinds.job.run import ENDED, Job
from metastore.kinds.job.template import PARTS, JobTemplate, SetTemplate
from metastore.plain import plain
from metastore.serve.gravitino import reading
from metastore.serve.gravitino.changes import Rename, Step, steps
from metastore.serve.gravitino.entities import apply
from metastore.serve.gravitino.errors import NotSupported, Refused
from metastore.serve.gravitino.shapes import audit
from metastore.serve.web import Answer, BadRequest, Call

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["ENDPOINTS", "content_json", "parts_of"]

_WORDS: Final = {"custom_fields": "customFields", "class_name": "className"}
_OF_SHELL: Final = ("executable", "arguments", "environments", "custom_fields", "scripts")
_OF: Final = {"shell": _OF_SHELL, "spark": tuple(part for part in PARTS if part != "scripts")}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parts_of(body: Mapping[str, Any], kind: str, prefix: str = "") -> dict[str, Any]:
    """Return the parts of a command that a body has, without null values."""
    parts = {}
    for part in _OF[kind]:
        word = _WORDS.get(part, part)
        key = f"{prefix}{word[0].upper()}{word[1:]}" if prefix else word
        if body.get(key) is not None:
            parts[part] = body[key]
    return parts


def content_json(parts: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the command of a template as JSON, with its type."""
    return {"jobType": kind, **{_WORDS.get(part, part): parts[part] for part in _OF[kind]}}


def _type(body: Mapping[str, Any], key: str) -> str:
    kind = reading.text(body, key).lower()
    if kind not in _OF:
        raise NotSupported(f"a job is a shell or a spark job here, not {kind[:40]!r}")
    return kind


def _template(one: JobTemplate) -> dict[str, Any]:
    shown = content_json({part: getattr(one, part) for part in _OF[one.type]}, one.type)
    return {"name": one.name, "comment": one.comment, **plain(shown), "audit": audit(one)}


def _job(one: Job) -> dict[str, Any]:
    """Return a job. Exit code and output are this server's own; clients of Gravitino ignore them."""
    return {
        "jobId": one.name,
        "jobTemplateName": one.template,
        "status": one.status,
        "audit": audit(one),
        "queuedAt": one.created_at.isoformat(),
        "startedAt": _time(one.started_at),
        "finishedAt": _time(one.finished_at),
        "exitCode": one.exit_code,
        "output": one.output,
    }


def _time(micros: int | None) -> str | None:
    return None if micros is None else (_EPOCH + timedelta(microseconds=micros)).isoformat()


def _templates(store: Store, call: Call) -> Answer:
    metalake = call.names["metalake"]
    if reading.flag(call, "details"):
        return Answer({"code": 0, "jobTemplates": [_template(one) for one in store.job_templates.list(metalake)]})
    return Answer({"code": 0, "names": list(store.job_templates.names((metalake,)))})


def _register(store: Store, call: Call) -> Answer:
    body = reading.mapping(reading.mapping(call.body, "the body").get("jobTemplate"), "jobTemplate")
    name, kind = reading.new_name(reading.text(body, "name")), _type(body, "jobType")
    comment = reading.optional(body, "comment", str)
    reading.text(body, "executable")
    store.job_templates.create((call.names["metalake"], name), type=kind, comment=comment, **parts_of(body, kind))
    return Answer({"code": 0})


def _names(call: Call) -> tuple[str, str]:
    return call.names["metalake"], call.names["job_template"]


def _load_template(store: Store, call: Call) -> Answer:
    return Answer({"code": 0, "jobTemplate": _template(store.job_templates.load(_names(call)))})


def _update_template(update: Mapping[str, Any]) -> Step:
    new = reading.mapping(update.get("newTemplate"), "newTemplate")
    return SetTemplate(parts_of(new, _type(new, "@type"), "new"))


_UPDATES: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "rename": lambda update: Rename(reading.new_name(reading.text(update, "newName"))),
    "updateComment": lambda update: SetComment(reading.optional(update, "newComment", str)),
    "updateTemplate": _update_template,
}


def _alter_template(store: Store, call: Call) -> Answer:
    wanted = [one for update in reading.updates(call) for one in steps(update, _UPDATES)]
    types = {
        _type(reading.mapping(update["newTemplate"], "newTemplate"), "@type")
        for update in reading.updates(call)
        if update["@type"] == "updateTemplate"
    }

    def change(tx: Any) -> JobTemplate:
        template: JobTemplate = tx.job_templates.load(_names(call))
        if types - {template.type}:
            message = f"the template {template.name} is of type {template.type}, which does not change"
            raise Refused(1001, 400, "IllegalArgumentException", message)
        altered: JobTemplate = apply(tx.job_templates, template.names, wanted)
        return altered

    return Answer({"code": 0, "jobTemplate": _template(store.run(change))})


def _drop_template(store: Store, call: Call) -> Answer:
    """Drop a template and its jobs, unless one of them has not ended."""
    metalake, name = _names(call)

    def drop(tx: Any) -> bool:
        try:
            template = tx.job_templates.load((metalake, name))
        except EntityNotFound:
            return False
        jobs = [job for job in tx.jobs.list(metalake) if job.template == name]
        dropped = bool(tx.job_templates.drop(template))  # drop first, because this checks the right
        if has_unfinished(tx, template):
            raise Refused(1010, 409, "InUseException", f"jobs of the template {name} have not ended; cancel them first")
        for job in jobs:
            tx.jobs.drop(job)
        return dropped

    return Answer({"code": 0, "dropped": store.run(drop)})


def _run(store: Store, call: Call) -> Answer:
    body = reading.mapping(call.body, "the body")
    conf = reading.optional(body, "jobConf", dict) or {}
    template = (call.names["metalake"], reading.text(body, "jobTemplateName"))
    return Answer({"code": 0, "job": _job(submit(store, template, conf))})


_TIMES: Final[Mapping[str, Callable[[Job], datetime | None]]] = {
    "queuedAt": lambda job: job.created_at,
    "startedAt": lambda job: None if job.started_at is None else _EPOCH + timedelta(microseconds=job.started_at),
    "finishedAt": lambda job: None if job.finished_at is None else _EPOCH + timedelta(microseconds=job.finished_at),
}


def _jobs(store: Store, call: Call) -> Answer:
    metalake, template = call.names["metalake"], call.query.get("jobTemplateName") or None
    if template is not None:
        store.job_templates.load((metalake, template))
    after = {word: _instant(call, word.replace("At", "After")) for word in _TIMES}
    jobs = [
        job
        for job in store.jobs.list((metalake,))
        if template in (None, job.template) and all(_not_before(_TIMES[word](job), at) for word, at in after.items())
    ]
    by, order = call.query.get("sortBy") or "queuedAt", call.query.get("sortOrder") or "desc"
    if by not in _TIMES or order not in ("asc", "desc"):
        raise BadRequest(f"sortBy is one of {', '.join(_TIMES)}, sortOrder asc or desc")
    jobs.sort(key=lambda job: (_TIMES[by](job) or _EPOCH, job.id), reverse=order == "desc")
    return Answer({"code": 0, "jobs": [_job(job) for job in jobs]})


def _instant(call: Call, word: str) -> datetime | None:
    text = call.query.get(word)
    if not text:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(f"{word} is an instant such as 2026-01-31T12:00:00Z, not {text[:40]!r}") from None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _not_before(at: datetime | None, first: datetime | None) -> bool:
    return first is None or (at is not None and at >= first)


def _load(store: Store, call: Call) -> Answer:
    return Answer({"code": 0, "job": _job(store.jobs.load((call.names["metalake"], call.names["job"])))})


def _cancel(store: Store, call: Call) -> Answer:
    job = store.jobs.load((call.names["metalake"], call.names["job"]))
    return Answer({"code": 0, "job": _job(job if job.status in ENDED else store.jobs.cancel(job))})


_JOBS: Final = "/metalakes/{metalake}/jobs"
_ONE: Final = f"{_JOBS}/templates/{{job_template}}"
ENDPOINTS: Final = (
    ("GET", f"{_JOBS}/templates", "job_template", _templates),
    ("POST", f"{_JOBS}/templates", "job_template", _register),
    ("GET", _ONE, "job_template", _load_template),
    ("PUT", _ONE, "job_template", _alter_template),
    ("DELETE", _ONE, "job_template", _drop_template),
    ("GET", f"{_JOBS}/runs", "job_template", _jobs),
    ("POST", f"{_JOBS}/runs", "job_template", _run),
    ("GET", f"{_JOBS}/runs/{{job}}", "job", _load),
    ("POST", f"{_JOBS}/runs/{{job}}", "job", _cancel),
)
