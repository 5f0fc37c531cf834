"""The subject of a step of the feed: an entity, the owner of an owned row, or the object of a relation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from metastore.errors import InvalidArgument
from metastore.kinds.registry import RELATIONSHIPS
from metastore.kinds.relation import relation_named
from metastore.names import parse_path
from metastore.port.backend import Reads
from metastore.port.records import Step

__all__ = ["LEASE", "Subject", "is_of_entity", "names_in", "subjects_of"]

LEASE = "lease"
"""The kind of the events of leases, which are not entities."""

_Names = tuple[str, ...]


class Subject(NamedTuple):
    """An entity, with its paths in the step."""

    id: int
    kind: str | None
    """None: the kind is not known."""
    paths: tuple[_Names, ...]


def is_of_entity(step: Step) -> bool:
    """Whether a step concerns an entity itself, not a row, a relation or a lease."""
    return step.owner_id is None and step.entity_id is not None and step.kind != LEASE


def names_in(path: str | None) -> _Names | None:
    """Return the names of a path; None: no path, or the row is damaged, which is reported elsewhere."""
    try:
        return None if path is None else parse_path(path)
    except InvalidArgument:
        return None


def subjects_of(reads: Reads, steps: Sequence[Step], asked: Callable[[Subject], bool]) -> list[Subject]:
    """Return the subject of each step. ``asked`` says whether to read the kind of an owner or object."""
    found = [_subject(step) for step in steps]
    ids = list(dict.fromkeys(one.id for one in found if one.kind is None and one.paths and asked(one)))
    known = {i: one.record.chain[-1].kind for i, one in zip(ids, reads.by_id(ids), strict=True) if one} if ids else {}
    return [one if one.kind is not None else one._replace(kind=known.get(one.id)) for one in found]


def _subject(step: Step) -> Subject:
    paths = tuple(names for path in (step.path_before, step.path_after) if (names := names_in(path)))
    if is_of_entity(step):
        return Subject(step.entity_id or 0, step.kind, paths)
    if step.other_id is None:
        return Subject(step.owner_id or 0, None, tuple(names[:-1] for names in paths))
    return Subject(_object_of(step), None, paths)


def _object_of(step: Step) -> int:
    if step.kind not in RELATIONSHIPS:
        return 0  # an unknown relation: only the path shows which entity is its object
    return (step.other_id if relation_named(step.kind).to_the_object else step.owner_id) or 0
