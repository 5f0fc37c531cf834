"""Mend the steps that reads of the past cannot find, for revision 0011; frozen with it.

Programs of format 6 wrote all steps of relations without their places. Programs of format 10 and earlier wrote a change
of another process without its place, if a batch carried that change. If two of their gc ran at once, a name could be
left without the step that took it. The steps before and after, and the tables, tell what a step lacks. If they do not,
or if the step itself is gone, the past begins later.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

__all__ = ["repair"]

T = TypeVar("T")

_AT_ONCE = 1000

_WITHOUT_PLACE = """SELECT DISTINCT entity_id FROM operation
WHERE seq IS NOT NULL AND parent_id IS NULL AND action = 'alter' AND owner_id IS NULL AND other_id IS NULL
  AND kind <> 'lease' AND version > 0
ORDER BY entity_id"""
_STEPS = """SELECT entity_id, version, coalesce(through, seq) AS seen, action, path_before, parent_id, name, fold
FROM operation WHERE entity_id IN :ids AND seq IS NOT NULL AND version > 0 ORDER BY entity_id, version"""
_STANDS = "SELECT id, parent_id, name, fold, family, key FROM guard WHERE id IN :ids"
_PLACED = """UPDATE operation SET parent_id = :parent_id, name = :name, fold = :fold, state = 0
WHERE entity_id = :entity_id AND version = :version"""
# a relation is below the end that it goes from, and its id is its name
_RELATIONS = """UPDATE operation SET parent_id = owner_id, name = CAST(entity_id AS TEXT),
  state = CASE action WHEN 'drop' THEN 1 ELSE 0 END, family = CASE action WHEN 'drop' THEN NULL ELSE kind END,
  key = CASE action WHEN 'drop' THEN NULL ELSE CAST(entity_id AS TEXT) END
WHERE seq IS NOT NULL AND other_id IS NOT NULL AND owner_id IS NOT NULL AND parent_id IS NULL"""
# "taken" is the last step up to each that took a name; the past finds a row only under a name that a step took
_UNFOUND = """WITH s AS (
  SELECT entity_id, version, coalesce(through, seq) AS seen, kind, owner_id, other_id, parent_id, name, fold, key,
    lag(version) OVER w AS before, max(CASE WHEN key IS NOT NULL THEN version END) OVER w AS taken
  FROM operation WHERE seq IS NOT NULL AND kind <> 'lease' AND version > 0
  WINDOW w AS (PARTITION BY entity_id ORDER BY version))
SELECT * FROM (
  SELECT s.entity_id, s.version, s.seen, s.kind, s.owner_id, s.other_id, s.parent_id, s.name, s.fold,
    s.version > coalesce(s.before, 0) + 1 AND s.seen > i.past_from AS lost,
    s.parent_id IS NOT NULL AND s.key IS NULL
      AND (t.entity_id IS NULL OR t.parent_id <> s.parent_id OR t.name <> s.name) AS unnamed
  FROM s CROSS JOIN info i LEFT JOIN operation t ON t.entity_id = s.entity_id AND t.version = s.taken) found
WHERE lost OR unnamed ORDER BY entity_id, version"""
_NAMED = "UPDATE operation SET family = :family, key = :key WHERE entity_id = :entity_id AND version = :version"
_BEGINS = "UPDATE info SET past_from = :since WHERE past_from < :since"
_NEVER = 1 << 62
_NAME = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


class _Place(NamedTuple):
    parent_id: int
    name: str
    fold: Any


def repair(connection: Connection) -> None:
    """Give steps their places and names; let the past begin after the steps that cannot be completed."""
    since = connection.scalar(sa.text("SELECT past_from FROM info")) or 0
    connection.execute(sa.text(_RELATIONS))
    begins = max(_give_places(connection, since), _give_names(connection))
    if begins > since:
        last = connection.scalar(sa.text("SELECT coalesce(max(seq), 0) FROM operation"))
        connection.execute(sa.text(_BEGINS), {"since": min(begins, last or 0)})


def _give_places(connection: Connection, since: int) -> int:
    """Place all alters that can be placed; return the position from which the past does not need the others."""
    begins = 0
    ids = [row[0] for row in connection.execute(sa.text(_WITHOUT_PLACE))]
    for some in _parts(ids):
        here = {row.id: _Place(row.parent_id, row.name, row.fold) for row in _among(connection, _STANDS, some)}
        rows: list[dict[str, Any]] = []
        for entity_id, group in groupby(_among(connection, _STEPS, some), key=attrgetter("entity_id")):
            steps = list(group)
            places = _places(steps, here.get(entity_id))
            rows += [{"entity_id": entity_id, "version": v, **p._asdict()} for v, p in places.items()]
            ends = [*[step.seen for step in steps[1:]], _NEVER]
            left = [end for step, end in zip(steps, ends, strict=True) if _lacks(step) and step.version not in places]
            begins = max([begins, *[end for end in left if end > since]])
        if rows:
            connection.execute(sa.text(_PLACED), rows)
    return begins


def _lacks(step: Any) -> bool:
    return step.parent_id is None and step.action == "alter"


def _places(steps: Sequence[Any], here: _Place | None) -> dict[int, _Place]:
    """Return the places of alters without one, by version. ``here``: the entity's present place."""
    found: dict[int, _Place] = {}
    place: _Place | None = None
    for step in steps:  # an alter leaves the entity where the step before it did
        place = _of(step) or (place if step.action == "alter" else None)
        if _lacks(step) and place is not None:
            found[step.version] = place
    place = here
    for step in reversed(steps):  # the first kept steps get the place from which the step after them started
        place = found.get(step.version) or _of(step) or (place if step.action == "alter" else None)
        if _lacks(step) and place is not None:
            found[step.version] = place
        place = _before(step, place)
    return found


def _of(step: Any) -> _Place | None:
    return None if step.parent_id is None else _Place(step.parent_id, step.name, step.fold)


def _before(step: Any, place: _Place | None) -> _Place | None:
    """Return the entity's place before a step that left it at ``place``; None: the step does not tell."""
    if place is None or step.action in ("create", "move", "restore"):
        return None
    return place._replace(name=_last_name(step.path_before)) if step.action == "rename" else place


def _give_names(connection: Connection) -> int:
    """Give family and key to the first step of each new name that lacks them.

    Return the position from which the past has all steps.
    """
    begins, unnamed = 0, list[Any]()
    for row in connection.execute(sa.text(_UNFOUND)):
        begins = max(begins, row.seen if row.lost else 0)
        if row.unnamed and (not unnamed or _place_of(unnamed[-1]) != _place_of(row)):
            unnamed.append(row)
    families = _families(connection) if unnamed else {}
    for some in _parts(unnamed):
        stands = {row.id: row for row in _among(connection, _STANDS, [row.entity_id for row in some])}
        named = [{"entity_id": row.entity_id, "version": row.version} for row in some]
        for values, row in zip(named, some, strict=True):
            values["family"], values["key"] = _key(row, stands.get(row.entity_id), families)
        connection.execute(sa.text(_NAMED), named)
    return begins


def _place_of(row: Any) -> tuple[int, int, str]:
    return row.entity_id, row.parent_id, row.name


def _key(row: Any, stands: Any, families: dict[str, str]) -> tuple[str, str]:
    """Return the family of a row, and the form in which its name is compared."""
    if row.owner_id is not None or row.other_id is not None:
        return row.kind, row.name
    if stands is not None and (stands.parent_id, stands.name) == (row.parent_id, row.name):
        return stands.family, stands.key
    folded = bool(row.fold) and row.kind not in ("metalake", "catalog")  # a catalog's flag is for what is below it
    return families.get(row.kind, row.kind), _fold(row.name) if folded else row.name


def _families(connection: Connection) -> dict[str, str]:
    rows = connection.execute(sa.text("SELECT DISTINCT kind, family FROM guard")).fetchall()
    return {"view": "table"} | {row.kind: row.family for row in rows}


def _parts(rows: list[T]) -> Iterator[list[T]]:
    return (rows[at : at + _AT_ONCE] for at in range(0, len(rows), _AT_ONCE))


def _among(connection: Connection, text: str, ids: Sequence[int]) -> Iterator[Any]:
    statement = sa.text(text).bindparams(sa.bindparam("ids", expanding=True))
    return iter(connection.execute(statement, {"ids": list(ids)}).fetchall())


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", name.casefold())


def _last_name(path: str) -> str:
    """Return the last name of a path. In back-quotes, a name may have dots, and a doubled back-quote means one."""
    quoted, plain = _NAME.findall(path)[-1]
    return str(plain or quoted.replace("``", "`"))
