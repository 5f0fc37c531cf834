"""The content of a container, and the entities that were dropped there: paged lists, with each entity's last change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from metastore.errors import InvalidArgument, MetastoreError, UnreadableRow
from metastore.kinds.entity import Entity
from metastore.kinds.registry import KINDS
from metastore.managers.all import Managers, plural
from metastore.serve.console.asked import Asked, bounded, url
from metastore.serve.console.words import command, done, steps_in_words

__all__ = ["Row", "Section", "children_of", "contents", "dropped", "lost", "row_of"]

_FEW, _MANY = 20, 50
"""How many rows of a kind a page shows: beside other kinds, and alone."""
_HELD: Final = 1000
"""How many entities of a dropped container are counted at most."""
_FIRST: Final = ("metalake", "catalog", "schema", "table", "view")


@dataclass(frozen=True)
class Row:
    """One entity of a list."""

    kind: str
    name: str
    path: str
    address: str
    about: str
    comment: str | None
    who: str | None
    when: datetime | None
    how: str
    is_off: bool = False
    restore: str | None = None
    """The command that restores the entity."""
    inside: str | None = None
    """The address of the page that shows its content as it was then."""


@dataclass(frozen=True)
class Section:
    """The rows of one kind. ``following``: the address of the next page."""

    kind: str
    label: str
    rows: Sequence[Row]
    following: str | None
    whole: str | None
    """The address of the list of this kind alone."""


def children_of(kind: str | None) -> list[str]:
    """Return the kinds that can be below a kind, those with most content first; None: the root."""
    kinds = [one.name for one in KINDS.values() if (kind in one.parents if kind else not one.parents)]
    return sorted(kinds, key=lambda one: (_FIRST.index(one) if one in _FIRST else len(_FIRST), one))


def contents(asked: Asked, entity: Entity | None) -> dict[str, Any]:
    """Return the lists of a container's content."""
    kinds = children_of(None if entity is None else entity.kind)
    only = asked.text("list")
    if only is not None and only not in kinds:
        raise InvalidArgument(f"nothing of the kind {only[:40]!r} is in a {entity.kind if entity else 'store'}")
    prefix = asked.text("prefix")
    sections = [
        _section(asked, entity, kind, prefix, _MANY if only or len(kinds) == 1 else _FEW)
        for kind in ([only] if only else kinds)
    ]
    shown = [one for one in sections if one.rows]
    return {
        "sections": shown,
        "only": only,
        "prefix": prefix,
        "kinds": [(kind, _label(kind)) for kind in kinds],
        "is_paged": asked.text("token") is not None,
    }


def _section(asked: Asked, entity: Entity | None, kind: str, prefix: str | None, size: int) -> Section:
    manager = asked.reader.manager(kind)
    token = asked.text("token") if asked.text("list") == kind else None
    page = manager.page(entity, size=size, token=token, prefix=prefix)
    path, above = (entity.path, entity.kind) if entity else (None, None)
    here = {"path": path, "kind": above, "list": kind, "prefix": prefix, "at": asked.at}
    rows = [row_of(asked, one) for one in page.items]
    return Section(
        kind,
        _label(kind),
        rows,
        None if page.next_token is None else url("place", **here, token=page.next_token),
        None if asked.text("list") else url("place", **here),
    )


def _label(kind: str) -> str:
    return plural(kind).replace("_", " ").capitalize()


def row_of(asked: Asked, entity: Entity) -> Row:
    """Return the row of an entity: who changed it last, when and how. A damaged entity gets a row, too."""
    address = url("place", path=entity.path, kind=entity.kind, at=asked.at)
    try:
        return Row(
            entity.kind,
            entity.name,
            entity.path,
            address,
            _about(entity),
            entity.comment,
            entity.modified_by,
            entity.modified_at,
            _how(asked.store, entity),
            not getattr(entity, "in_use", True),
        )
    except UnreadableRow:
        return Row(
            entity.kind, entity.name, entity.path, address, "damaged; see: metastore verify", None, None, None, ""
        )


def _how(store: Managers, entity: Entity) -> str:
    """Return the last change in words. An entity that never changed after its creation needs no read."""
    if entity.version == 1:
        return "created"
    try:
        steps = store.manager(entity.kind).history_page(entity, size=1, after=entity.version - 1).items
    except MetastoreError:
        return "changed"
    if not steps:
        return "changed"
    first, *more = steps_in_words(steps[0])
    return f"{first}, and {len(more)} more" if more else first


def _about(entity: Entity) -> str:
    """Return the most useful fact about an entity of its kind."""
    match entity.kind:
        case "table" | "view":
            count = len(entity.doc["columns"])
            text = f"{count:,} column{'s' * (count != 1)}"
            partitioned = getattr(entity, "partitioning", ())
            return f"{text}, by {', '.join(partitioned)}" if partitioned else text
        case "catalog" | "fileset" | "function" | "policy" | "job_template":
            return str(entity.doc.get("type", ""))
        case "model":
            return f"latest version {entity.doc['latest_version']}"
        case "job":
            return str(entity.doc["status"])
        case _:
            return ""


# --- dropped


def dropped(asked: Asked, entity: Entity | None) -> dict[str, Any]:
    """Return the dropped entities of a container that can be restored, each with its content and who dropped it."""
    kinds = children_of(None if entity is None else entity.kind)
    only = asked.text("list")
    sections = []
    for kind in [one for one in kinds if only in (None, one)]:
        token = asked.text("token") if only == kind else None
        page = asked.store.manager(kind).dropped_page(entity, size=_FEW, token=token)
        here = {"path": entity and entity.path, "kind": entity and entity.kind, "tab": "dropped", "list": kind}
        following = None if page.next_token is None else url("place", **here, token=page.next_token)
        if page.items:
            sections.append(Section(kind, _label(kind), [lost(asked, one) for one in page.items], following, None))
    return {"sections": sections, "only": only}


def lost(asked: Asked, entity: Entity) -> Row:
    """Return the row of a dropped entity: who dropped it, its content, and the command that restores it."""
    before = (entity.modified_at - timedelta(microseconds=1)).isoformat()
    inside = None
    if not asked.is_restricted:
        inside = url("place", path=entity.path, kind=entity.kind, at=before)
    return Row(
        entity.kind,
        entity.name,
        entity.path,
        url("place", path=entity.path, kind=entity.kind),
        _held(asked, entity, before),
        entity.comment,
        entity.modified_by,
        entity.modified_at,
        done("drop"),
        restore=command("restore", entity.path, "--id", entity.id, "--kind", entity.kind),
        inside=inside,
    )


def _held(asked: Asked, entity: Entity, before: str) -> str:
    """Return the content of a dropped entity in words: counts by kind for a container."""
    kinds = children_of(entity.kind)
    if not kinds or asked.is_restricted:
        return _about(entity)
    try:
        past = asked.store.at(datetime.fromisoformat(before))
        counts = []
        for kind in kinds:
            names, more = bounded(past.manager(kind).names(entity, page_size=_HELD), _HELD, 0.2)
            if names:
                text = f"more than {len(names):,}" if more else f"{len(names):,}"
                counts.append(f"{text} {_label(kind).lower() if len(names) != 1 else kind.replace('_', ' ')}")
    except MetastoreError:
        return "not known any more"
    return ", ".join(counts) or "nothing"
