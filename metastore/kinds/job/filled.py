"""Fill in a job template: the result is the command of a job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from metastore.kinds.change import Doc
from metastore.kinds.job.template import PARTS, JobTemplate

__all__ = ["filled", "is_filled"]

_PLACEHOLDER: Final = re.compile(r"\{\{([\w.-]+)\}\}")


def is_filled(job: Doc, template: JobTemplate) -> bool:
    """Whether a document is a queued job of this template with no changes but the values of its placeholders."""
    conf, status = job["conf"], job["status"]
    return (
        all(isinstance(value, str) for value in conf.values())
        and job["command"] == filled(template, conf)
        and (job["type"], status, job["execution_id"]) == (template.type, "queued", None)
    )


def filled(template: JobTemplate, values: Mapping[str, str]) -> dict[str, Any]:
    """Return the parts of a template with its placeholders replaced, also in the keys of mappings."""
    return {name: _filled(template.doc[name], values) for name in PARTS}


def _filled(part: Any, values: Mapping[str, str]) -> Any:
    if isinstance(part, str):
        return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), part)
    if isinstance(part, Mapping):
        return {_filled(key, values): _filled(value, values) for key, value in part.items()}
    return part if part is None else [_filled(one, values) for one in part]
