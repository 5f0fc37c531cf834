"""Time: the versions of an entity, two side by side, everything that changed below it, and the effect of a revert."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from metastore.clock import SYSTEM
from metastore.deadlines import until
from metastore.errors import DeadlineExceeded, InvalidArgument
from metastore.kinds.entity import Entity, Version
from metastore.kinds.secret import masked
from metastore.names import parse_path
from metastore.past.diff import Difference
from metastore.secrets.names import without_secrets
from metastore.serve.console.asked import Asked, Shown, bounded, moment, url
from metastore.serve.console.frame import frame
from metastore.serve.console.tree import tree
from metastore.serve.console.words import change_in_words, command, safe, short, steps_in_words, value_text

__all__ = ["changes", "compare", "history", "revert"]

_VERSIONS: Final = 30
"""How many versions a page shows."""
_MOST: Final = 500
"""How many differences a page shows."""
_SECONDS: Final = 3.0
"""How long a page reads differences, or plans a revert."""
_WORDS: Final = 6
"""How many changes of one entity are described."""
_LINES: Final = 400
"""How many lines two versions side by side have at most."""


@dataclass(frozen=True)
class Step:
    """One version in the list of versions."""

    version: Version
    phrases: Sequence[str]
    address: str
    compared: str | None


def history(asked: Asked, entity: Entity) -> dict[str, Any]:
    """Return the versions of an entity, the newest first."""
    newest = min(asked.number("until", entity.version), entity.version)
    oldest = max(0, newest - _VERSIONS)
    manager = asked.store.manager(entity.kind)
    page = manager.history_page(entity, size=max(1, newest - oldest), after=oldest)
    named = {"path": entity.path, "kind": entity.kind}
    steps = [
        Step(
            one,
            steps_in_words(one)[:_WORDS],
            url("place", **named, tab="details", version=one.version),
            url("compare", **named, a=one.version - 1, b=one.version) if one.version > 1 else None,
        )
        for one in reversed(page.items)
        if one.version <= newest
    ]
    return {
        "steps": steps,
        "older": url("place", **named, tab="history", until=oldest) if oldest else None,
        "newer": url("place", **named, tab="history", until=min(entity.version, newest + _VERSIONS))
        if newest < entity.version
        else None,
        "is_restricted": asked.is_restricted,
    }


# --- two versions


@dataclass(frozen=True)
class Line:
    """One value at two versions. ``sign``: "+", "-", "~", or "" if they are equal."""

    sign: str
    name: str
    before: str
    after: str


def compare(asked: Asked) -> Shown:
    """Return two versions of an entity side by side, column by column."""
    entity = asked.entity()
    b = asked.number("b", entity.version)
    a = asked.number("a", max(1, b - 1))
    manager = asked.store.manager(entity.kind)
    before, after = manager.load(entity, version=a), manager.load(entity, version=b)
    every = bool(asked.text("all"))
    fields = [one for one in _fields(before, after) if every or one.sign]
    columns = [one for one in _columns(before, after) if every or one.sign]
    values = {
        **frame(asked, entity, "history"),
        "a": before,
        "b": after,
        "fields": fields[:_LINES],
        "columns": columns[:_LINES],
        "left": max(0, len(fields) - _LINES) + max(0, len(columns) - _LINES),
        "every": every,
        "toggle": asked.here(all=None if every else 1),
        "has_columns": bool(before.doc.get("columns") or after.doc.get("columns")),
    }
    title = f"{entity.path}: versions {a} and {b}"
    return Shown("compare.html", title, values, command("diff", entity.path, a, b, "--kind", entity.kind))


def _document(entity: Entity) -> dict[str, str]:
    """Return an entity's document as flat texts, without its columns."""
    doc: Mapping[str, Any] = json.loads(masked(entity.record.doc))
    flat = {"name": entity.name}
    for key, value in doc.items():
        if key in ("columns", "last_column_id"):
            continue
        if key == "properties":
            flat |= {f"property {name}": short(value_text(name, text), 400) for name, text in value.items()}
        elif value not in (None, "", [], {}):
            text = value if isinstance(value, str) else json.dumps(without_secrets(value, key))
            flat[key.replace("_", " ")] = short(text, 400)
    return flat


def _fields(before: Entity, after: Entity) -> Iterator[Line]:
    one, other = _document(before), _document(after)
    for key in dict.fromkeys([*one, *other]):
        yield _line(key, one.get(key), other.get(key))


def _columns(before: Entity, after: Entity) -> Iterator[Line]:
    """Yield the columns of both versions; a renamed one is the same, because columns have ids."""
    one, other = _by_id(before), _by_id(after)
    for key in dict.fromkeys([*other, *one]):
        yield _line(
            (other.get(key) or one[key])[0],
            None if key not in one else " ".join(one[key]),
            None if key not in other else " ".join(other[key]),
        )


def _by_id(entity: Entity) -> dict[int, tuple[str, ...]]:
    found = {}
    for column in getattr(entity, "columns", ()):
        words = [safe(column.name), column.type, "" if column.nullable else "not null"]
        words += [f"default {short(column.default)}" if column.default is not None else ""]
        words += [f"“{short(column.comment)}”" if column.comment else ""]
        found[column.id] = tuple([word for word in words if word])
    return found


def _line(name: str, before: str | None, after: str | None) -> Line:
    sign = "" if before == after else "+" if before is None else "-" if after is None else "~"
    return Line(sign, safe(name), before or "", after or "")


# --- everything below, between two moments


@dataclass
class Folder:
    """A node of the tree of differences."""

    name: str
    found: list[Difference] = field(default_factory=list)
    below: dict[str, Folder] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many differences are here and below."""
        return len(self.found) + sum(one.count for one in self.below.values())


def changes(asked: Asked) -> Shown:
    """Return everything that changed below a place between two moments, folded as a tree."""
    start, end = asked.text("from") or "1 day ago", asked.text("to")
    entity = asked.entity() if asked.text("path") else None
    store = asked.store
    if asked.is_restricted:
        raise InvalidArgument("the past is shown to admins only; the feed shows the changes that you may see")
    found = store.diff(
        moment(start),
        None if end is None else moment(end),
        under=None if entity is None else entity.path,
        kind=None if entity is None else entity.kind,
    )
    differences, more = bounded(found, _MOST, _SECONDS)
    values = {**_framed(asked, entity, "changes"), "root": _folded(differences, entity), "count": len(differences)}
    values |= {"more": more, "start": start, "end": end or "", "words": _words}
    under = entity.path if entity else None
    title = f"What changed below {under}" if under else "What changed"
    shown = command("diff", under, "--from", start, *(("--to", end) if end else ()))
    return Shown("changes.html", title, values, shown)


def _framed(asked: Asked, entity: Entity | None, tab: str) -> dict[str, Any]:
    if entity is not None:
        return frame(asked, entity, tab)
    return {"entity": None, "crumbs": [], "tree": tree(asked, None), "tabs": [], "tab": tab}


def _words(one: Difference) -> list[str]:
    """Return the differences in phrases."""
    words = []
    if one.path_before and one.path_after and one.path_before != one.path_after:
        words.append(f"from {safe(one.path_before)}")
    if one.other_path:
        words.append(safe(one.other_path) + (f" = {safe(one.value)}" if one.value else ""))
    told = [change_in_words(change) for change in one.changes[:_WORDS]]
    left = len(one.changes) - len(told)
    return [*words, *told, *([f"and {left:,} more changes"] if left > 0 else [])]


def _folded(differences: Sequence[Difference], entity: Entity | None) -> Folder:
    root = Folder(entity.path if entity else "all")
    skip = len(entity.names) if entity else 0
    for one in differences:
        names = parse_path(one.path_after or one.path_before or "?")
        folder = root
        for name in names[skip:]:
            folder = folder.below.setdefault(name, Folder(name))
        folder.found.append(one)
    return root


def revert(asked: Asked) -> Shown:
    """Return the changes that a revert would make, and the command for it."""
    entity = asked.entity()
    to = asked.text("to")
    if asked.is_restricted:
        raise InvalidArgument("the past is shown to admins only")
    plan, is_late = list[Difference](), False
    if to is not None:
        try:
            with until(SYSTEM.monotonic() + _SECONDS):
                plan = asked.store.revert(entity.path, to=moment(to), kind=entity.kind, dry_run=True)
        except DeadlineExceeded:
            is_late = True
    values = {
        **_framed(asked, entity, "changes"),
        "to": to or "",
        "root": _folded(plan[:_MOST], entity),
        "count": len(plan),
        "more": len(plan) > _MOST,
        "is_late": is_late,
        "words": _words,
        "does": command("revert", entity.path, "--to", to, "--kind", entity.kind) if to else None,
    }
    shown = command("revert", entity.path, "--to", to, "--kind", entity.kind, "--dry-run") if to else None
    return Shown("revert.html", f"Revert {entity.path}", values, shown)
