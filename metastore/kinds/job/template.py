"""The job template: a command with placeholders, ``{{name}}``, which each run fills in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

from metastore.arguments import items, shown
from metastore.errors import InvalidArgument
from metastore.kinds.change import Doc, EntityChange
from metastore.kinds.entity import Entity
from metastore.kinds.field import doc_field
from metastore.kinds.kind import COMMON_CHANGES, Kind
from metastore.names import clean_text
from metastore.plain import read_only

__all__ = ["JOB_TEMPLATE", "JOB_TYPES", "PARTS", "JobTemplate", "SetTemplate", "clean_parts"]

JOB_TYPES: Final = ("shell", "spark")
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def clean_type(type: Any) -> str:
    """Return the type of a job."""
    if type not in JOB_TYPES:
        raise InvalidArgument(f"a job's type is one of {', '.join(JOB_TYPES)}, not {shown(type)}")
    return str(type)


def _clean_executable(executable: Any) -> str:
    if not clean_text(executable, "an executable").strip():
        raise InvalidArgument("an executable must not be blank")
    return str(executable)


def _clean_texts(values: Any, what: str) -> list[str]:
    return [clean_text(value, what) for value in items(values, what)]


def _clean_pairs(values: Any, what: str) -> dict[str, str]:
    if not isinstance(values, Mapping):
        raise InvalidArgument(f"{what} map strings to strings, not {shown(values)}")
    return {clean_text(key, f"a key of {what}"): clean_text(value, what) for key, value in values.items()}


def _clean_class(name: Any) -> str | None:
    return None if name is None else clean_text(name, "a class name")


_TEXTS: Final = ("arguments", "scripts", "jars", "files", "archives")
_PAIRS: Final = ("environments", "custom_fields", "configs")
PARTS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "executable": _clean_executable,
    **{name: partial(_clean_texts, what=name) for name in _TEXTS},
    **{name: partial(_clean_pairs, what=name.replace("_", " ")) for name in _PAIRS},
    "class_name": _clean_class,
}
"""The parts of a command, and the check of each. All parts may contain placeholders."""


def clean_parts(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Check the parts of a command and return them as JSON. Raises InvalidArgument."""
    if not isinstance(parts, Mapping):
        raise InvalidArgument(f"a command is a mapping of its parts, not {shown(parts)}")
    unknown = [name for name in parts if not isinstance(name, str) or name not in PARTS]
    if unknown:
        raise InvalidArgument(f"a job has no part {shown(unknown[0])}; it has {', '.join(PARTS)}")
    return {name: PARTS[name](value) for name, value in parts.items()}


class JobTemplate(Entity):
    """A command. A shell job has ``scripts`` besides its executable; the last five fields are for Spark jobs."""

    type: Literal["shell", "spark"] = doc_field(clean_type, fixed=True)
    executable: str = doc_field(PARTS["executable"])
    arguments: tuple[str, ...] = doc_field(PARTS["arguments"], several=True, decode=tuple)
    environments: Mapping[str, str] = doc_field(PARTS["environments"], default=_NOTHING, decode=read_only)
    custom_fields: Mapping[str, str] = doc_field(PARTS["custom_fields"], default=_NOTHING, decode=read_only)
    scripts: tuple[str, ...] = doc_field(PARTS["scripts"], several=True, decode=tuple)
    class_name: str | None = doc_field(PARTS["class_name"], default=None)
    jars: tuple[str, ...] = doc_field(PARTS["jars"], several=True, decode=tuple)
    files: tuple[str, ...] = doc_field(PARTS["files"], several=True, decode=tuple)
    archives: tuple[str, ...] = doc_field(PARTS["archives"], several=True, decode=tuple)
    configs: Mapping[str, str] = doc_field(PARTS["configs"], default=_NOTHING, decode=read_only)


@dataclass(frozen=True)
class SetTemplate(EntityChange):
    """Replace some parts of a job template, each as a whole: ``SetTemplate({"arguments": ["-v"]})``."""

    parts: Mapping[str, Any]
    since: ClassVar[int] = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", read_only(clean_parts(self.parts)))

    def __hash__(self) -> int:
        return hash(tuple(self.parts))

    def apply(self, doc: Doc, path: tuple[str, ...]) -> None:
        doc.update(clean_parts(self.parts))

    def to_json(self) -> dict[str, Any]:
        return {"parts": clean_parts(self.parts)}


JOB_TEMPLATE = Kind(
    "job_template", "job_template", ("metalake",), JobTemplate, (*COMMON_CHANGES, SetTemplate), since=4, stays=True
)
