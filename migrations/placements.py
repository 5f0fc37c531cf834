"""Find the places of the rows of old steps, for revision 0006; frozen with it.

A step of an entity has its path, and no parent. A replay in the feed's order finds the parent: the live entity that the
path before the last name led to at that position. Only steps that place an entity are replayed. All other steps have
the place of the last such step before them. Afterwards the replay must agree with the tables; otherwise its result is
not used.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

__all__ = ["replay"]

_AT_ONCE = 1000
_LIVE, _DROPPED, _PURGING = 0, 1, 2
_PLACES = ("create", "rename", "move", "restore", "enable", "disable", "drop", "purge")
_WORDS = ", ".join(f"'{word}'" for word in _PLACES)
_ENTITY = "seq IS NOT NULL AND owner_id IS NULL AND other_id IS NULL AND kind <> 'lease' AND version > 0"

_CUT = "SELECT collected_seq > 0 FROM info"
_PLACING = f"""SELECT seq, entity_id, version, kind, action, path_after, CASE kind WHEN 'catalog' THEN doc END
FROM operation WHERE {_ENTITY} AND action IN ({_WORDS}) AND (action <> 'create' OR version = 1) ORDER BY seq"""
_PLACED = """UPDATE operation SET parent_id = :parent_id, name = :name, fold = :fold, state = :state,
  family = :family, key = :key WHERE seq = :seq"""
# every other step of an entity gets the place of the last step before it that placed the entity
_INHERITED = f"""UPDATE operation SET parent_id = p.parent_id, name = p.name, fold = p.fold, state = p.state
FROM (SELECT entity_id, version, max(CASE WHEN parent_id IS NOT NULL THEN version END)
    OVER (PARTITION BY entity_id ORDER BY version) AS placed FROM operation WHERE {_ENTITY}) AS l, operation AS p
WHERE operation.entity_id = l.entity_id AND operation.version = l.version AND operation.parent_id IS NULL
  AND operation.seq IS NOT NULL AND p.entity_id = l.entity_id AND p.version = l.placed"""
# rows that are gone: dropped, or purged with their owner; a purge leaves no steps for the owner's rows
_OWNED_NAMES = """SELECT DISTINCT o.entity_id, coalesce(o.path_after, o.path_before) FROM operation o
LEFT JOIN owned w ON w.id = o.entity_id
WHERE o.seq IS NOT NULL AND o.owner_id IS NOT NULL AND o.other_id IS NULL AND w.id IS NULL"""
_OWNED = """UPDATE operation SET parent_id = operation.owner_id, name = {name},
  state = CASE operation.action WHEN 'drop' THEN 1 ELSE 0 END,
  family = CASE operation.action WHEN 'drop' THEN NULL ELSE operation.kind END,
  key = CASE operation.action WHEN 'drop' THEN NULL ELSE {name} END"""
_OWNED_HERE = f"""{_OWNED.format(name="w.name")} FROM owned AS w
WHERE operation.entity_id = w.id AND operation.seq IS NOT NULL AND operation.owner_id IS NOT NULL"""
_OWNED_GONE = f"""{_OWNED.format(name=":name")}
WHERE entity_id = :id AND seq IS NOT NULL AND owner_id IS NOT NULL AND other_id IS NULL"""
# a relation is below the end that it goes from, and its id is its name
_RELATIONS = """UPDATE operation SET parent_id = owner_id, name = CAST(entity_id AS TEXT),
  state = CASE action WHEN 'drop' THEN 1 ELSE 0 END, family = CASE action WHEN 'drop' THEN NULL ELSE kind END,
  key = CASE action WHEN 'drop' THEN NULL ELSE CAST(entity_id AS TEXT) END
WHERE seq IS NOT NULL AND other_id IS NOT NULL"""
_TOGETHER = """UPDATE operation SET through = m.last
FROM (SELECT operation_id, max(seq) AS last FROM operation WHERE seq IS NOT NULL
  GROUP BY operation_id HAVING count(*) > 1) AS m
WHERE operation.operation_id = m.operation_id AND operation.seq IS NOT NULL"""
_NOWHERE = """SELECT count(*) FROM operation
WHERE seq IS NOT NULL AND kind <> 'lease' AND parent_id IS NULL"""
_FORGET = """UPDATE operation SET parent_id = NULL, name = NULL, fold = NULL, state = NULL, family = NULL, key = NULL
WHERE parent_id IS NOT NULL"""


class _Unknown(Exception):
    """A path leads nowhere at its position: history is missing."""


def replay(connection: Connection) -> bool:
    """Complete all steps. Return False if history is missing, so that only ``through`` is completed."""
    connection.execute(sa.text(_TOGETHER))
    if connection.scalar(sa.text(_CUT)):
        return False
    tree = _Tree(_families(connection))
    try:
        for rows in tree.placed(_steps(connection)):
            connection.execute(sa.text(_PLACED), rows)
    except (_Unknown, ValueError):
        return _forgotten(connection)
    connection.execute(sa.text(_INHERITED))
    connection.execute(sa.text(_OWNED_HERE))
    gone = [{"id": row[0], "name": _names(row[1])[-1]} for row in connection.execute(sa.text(_OWNED_NAMES)).fetchall()]
    for at in range(0, len(gone), _AT_ONCE):
        connection.execute(sa.text(_OWNED_GONE), gone[at : at + _AT_ONCE])
    connection.execute(sa.text(_RELATIONS))
    guards = connection.execute(sa.text("SELECT id, parent_id, name, fold, state FROM guard WHERE id <> 0"))
    agrees = all(tree.agrees(*row) for row in guards.fetchall())
    if not agrees or connection.scalar(sa.text(_NOWHERE)):
        return _forgotten(connection)
    return True


def _forgotten(connection: Connection) -> bool:
    connection.execute(sa.text(_FORGET))
    return False


def _families(connection: Connection) -> dict[str, str]:
    """Return the family of each kind. If no entity of a kind is left, the kind is its own family, except for views."""
    rows = connection.execute(sa.text("SELECT DISTINCT kind, family FROM guard")).fetchall()
    return {"view": "table"} | {row[0]: row[1] for row in rows}


def _steps(connection: Connection) -> Iterator[tuple[Any, ...]]:
    """Yield the steps that place an entity, in batches: the updates between the batches use the same connection."""
    after = 0
    text = sa.text(_PLACING.replace("ORDER BY", "AND seq > :after ORDER BY") + f" LIMIT {_AT_ONCE}")
    while rows := connection.execute(text, {"after": after}).fetchall():
        yield from map(tuple, rows)
        after = rows[-1][0]


class _Tree:
    """The place of each entity during the replay of steps."""

    def __init__(self, families: Mapping[str, str]) -> None:
        self._families = families
        self._stands: dict[int, tuple[int, str, bool, int]] = {}
        """Parent, name, whether names below are folded, state; by id."""
        self._live: dict[tuple[int, str, str], int] = {}
        """Ids by parent, family and key."""

    def placed(self, steps: Iterator[tuple[Any, ...]]) -> Iterator[list[dict[str, Any]]]:
        """Yield the places of entities after these steps, in batches. Raises _Unknown."""
        some: list[dict[str, Any]] = []
        for step in steps:
            some.append(self._after(*step))
            if len(some) == _AT_ONCE:
                yield some
                some = []
        if some:
            yield some

    def _after(
        self, seq: int, entity_id: int, version: int, kind: str, action: str, path: str | None, doc: str | None
    ) -> dict[str, Any]:
        family = self._families.get(kind, kind)
        self._leave(entity_id, family)
        if action in ("drop", "purge"):
            parent_id, name, fold, _ = self._stand(entity_id)
            state = _DROPPED if action == "drop" else _PURGING
        else:
            names = _names(path or "")
            parent_id, below_folds = self._parent(names)
            name, fold, state = names[-1], self._folds(entity_id, kind, doc, below_folds), _LIVE
        self._stands[entity_id] = (parent_id, name, fold, state)
        key = self._key(parent_id, name)
        if state == _LIVE:
            self._live[parent_id, family, key] = entity_id
        row: dict[str, Any] = {"seq": seq, "parent_id": parent_id, "name": name, "fold": fold, "state": state}
        return row | ({"family": family, "key": key} if state == _LIVE else {"family": None, "key": None})

    def _leave(self, entity_id: int, family: str) -> None:
        known = self._stands.get(entity_id)
        if known is not None and known[3] == _LIVE:
            self._live.pop((known[0], family, self._key(known[0], known[1])), None)

    def _stand(self, entity_id: int) -> tuple[int, str, bool, int]:
        if entity_id not in self._stands:
            raise _Unknown(entity_id)
        return self._stands[entity_id]

    def _parent(self, names: tuple[str, ...]) -> tuple[int, bool]:
        """Return the entity to which the names before the last one lead, and whether names below it are folded."""
        parent_id = 0
        for depth, name in enumerate(names[:-1]):
            family = ("metalake", "catalog")[depth] if depth < 2 else "schema"
            live = self._live.get((parent_id, family, self._key(parent_id, name)))
            if live is None:
                raise _Unknown(names)
            parent_id = live
        return parent_id, self._stands[parent_id][2] if parent_id else False

    def _key(self, parent_id: int, name: str) -> str:
        return _fold(name) if parent_id and self._stands[parent_id][2] else name

    def _folds(self, entity_id: int, kind: str, doc: str | None, below_folds: bool) -> bool:
        if kind != "catalog":
            return below_folds
        known = self._stands.get(entity_id)
        return bool(json.loads(doc or "{}").get("fold_case")) if known is None else known[2]

    def agrees(self, entity_id: int, parent_id: int, name: str, fold: Any, state: int) -> bool:
        """Whether an entity's place agrees with the tables."""
        return self._stands.get(entity_id) == (parent_id, name, bool(fold), state)


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", name.casefold())


def _names(path: str) -> tuple[str, ...]:
    """Return the names of a path. In back-quotes, a name may have dots, and a doubled back-quote means one."""
    names: list[str] = []
    at = 0
    while at < len(path):
        if path[at] == "`":
            end = at + 1
            while path[end : end + 1] != "`" or path[end + 1 : end + 2] == "`":
                end += 2 if path[end : end + 2] == "``" else 1
                if end >= len(path):
                    raise ValueError(path)
            names.append(path[at + 1 : end].replace("``", "`"))
            at = end + 2
        else:
            name, _, _ = path[at:].partition(".")
            names.append(name)
            at += len(name) + 1
    if not names:
        raise ValueError("a path without names")
    return tuple(names)
