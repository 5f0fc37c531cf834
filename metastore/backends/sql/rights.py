"""The statement that reads a user's rights, on both SQL databases, and the meaning of its rows.

Users, groups and roles count if they are live; the object in question counts in any state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from metastore.backends.sql.comments import without_comments
from metastore.backends.sql.dialect import Dialect
from metastore.backends.sql.reads import NODE
from metastore.port.rights import GrantRow, MembershipRow, RightRows, RoleRow

_MEMBER, _ROLE, _OWNER, _GRANT = range(4)
_FEW = 100
"""Up to this many roles of a user count as few."""
_LEVELS = (_FEW, 10 * _FEW, 100 * _FEW)
"""The steps in which two ways are counted, to find the shorter one."""


def statement(dialect: Dialect, places: str, *, below: bool = False, lake: str = ":lake") -> str:
    """Return the statement. ``below``: for the children of an entity too; ``lake``: the metalake's id.

    ``places`` is a table ``w`` with an ``id``. Each join looks rows up for each row on its left, so the cost depends on
    the places and the user's roles, not on other grants of these or other roles.
    """
    each = dialect.each
    way, children = _below(each) if below else ("", "")
    return without_comments(f"""WITH
-- the user
me AS (
  SELECT id, kind, name, scope_version, in_use FROM guard
  WHERE parent_id = {lake} AND family = 'user' AND key = :name AND state = 0),
-- the user and its groups, disabled ones too; SQLite would read them again for each use if they were not materialized
member AS MATERIALIZED (
  SELECT * FROM me
  UNION ALL
  SELECT g.id, g.kind, g.name, g.scope_version, g.in_use FROM me
    {each("relation", "r", "r.from_id = me.id AND r.kind = 'membership'")}
    {each("guard", "g", "g.id = r.to_id AND g.kind = 'group' AND g.state = 0")}),
-- the roles that each of them has
role AS MATERIALIZED (
  SELECT m.id AS member, g.id, g.name, g.scope_version FROM member m
    {each("relation", "r", "r.from_id = m.id AND r.kind = 'membership'")}
    {each("guard", "g", "g.id = r.to_id AND g.kind = 'role' AND g.state = 0")}){way}
SELECT {_MEMBER} AS what, id AS one, scope_version AS other, CASE WHEN in_use THEN 1 ELSE 0 END AS number, kind AS word,
  name AS name FROM member
UNION ALL
SELECT {_ROLE}, member, id, scope_version, '', name FROM role
-- the places that the user owns
UNION ALL
SELECT {_OWNER}, r.from_id, r.to_id, 0, '', '' FROM {places}
  {each("relation", "r", "r.from_id = w.id AND r.kind = 'owner'")}
  WHERE r.to_id IN (SELECT id FROM member)
-- the grants of the user's roles on the places: a few roles are looked up one by one, because other roles may have many
-- grants there
UNION ALL
SELECT {_GRANT}, r.from_id, r.to_id, 0, r.value, '' FROM (SELECT DISTINCT id FROM role) o CROSS JOIN {places}
  {each("relation", "r", "r.from_id = o.id AND r.kind = 'grant' AND r.slot = w.id")}
  WHERE (SELECT count(*) FROM role) <= {_FEW}
-- for many roles, all grants on the places are read
UNION ALL
SELECT {_GRANT}, r.from_id, r.to_id, 0, r.value, '' FROM {places}
  {each("relation", "r", "r.to_id = w.id AND r.kind = 'grant'")}
  WHERE (SELECT count(*) FROM role) > {_FEW} AND r.from_id IN (SELECT id FROM role){children}""")


def _below(each: Callable[[str, str, str], str]) -> tuple[str, str]:
    """Return the table ``way``, and the selects of the user's ownerships and grants at the children of ``:below``.

    There are two ways: from everything that the user has anywhere, and from the children. A row of ``way`` names the
    shorter one. It is in the first condition of each join, so the longer way reads nothing.
    """
    # two selects, because live children and all others have separate indexes
    children = [
        each("guard", "c", f"{{}} AND c.parent_id = :below AND c.state {state}") + " {}" for state in ("= 0", "<> 0")
    ]
    owned = "CROSS JOIN member m " + each("relation", "r", "w.owns = 0 AND r.to_id = m.id AND r.kind = 'owner'")
    mine = "CROSS JOIN (SELECT DISTINCT id FROM role) o"
    granted = f"{mine} " + each("relation", "r", "w.grants = 0 AND r.from_id = o.id AND r.kind = 'grant'")
    one = "SELECT 1 AS one FROM (SELECT 0 AS owns, 0 AS grants) w"

    def all_children(more: str) -> str:
        return " UNION ALL ".join([f"{one} {child.format('w.owns = 0', more)}" for child in children])

    owner = f"SELECT {_OWNER}, r.from_id, r.to_id, 0, '', '' FROM way w"
    grant = f"SELECT {_GRANT}, r.from_id, r.to_id, 0, r.value, '' FROM way w"
    owner_of = each("relation", "r", "r.from_id = c.id AND r.kind = 'owner'")
    grant_on = each("relation", "r", "r.from_id = o.id AND r.kind = 'grant' AND r.slot = c.id")
    way = f""",
-- 1: the user owns more objects than there are children; or its roles have more grants than there are pairs of a role
-- and a child
way AS (SELECT {_are_fewer(all_children(""), f"{one} {owned}")} AS owns,
  {_are_fewer(all_children(mine), f"{one} {granted}")} AS grants)"""
    selects = [
        # the first way: from the entities that the user owns, and from the grants of its roles
        f"{owner} {owned} {each('guard', 'c', 'c.id = r.from_id AND c.parent_id = :below')}",
        f"{grant} {granted} {each('guard', 'c', 'c.id = r.to_id AND c.parent_id = :below')}",
        # the second way: from the children
        *[
            f"{owner} {child.format('w.owns = 1', owner_of)} WHERE r.to_id IN (SELECT id FROM member)"
            for child in children
        ],
        *[f"{grant} {child.format('w.grants = 1', f'{mine} {grant_on}')}" for child in children],
    ]
    return way, "".join([f"\nUNION ALL\n{select}" for select in selects])


def _are_fewer(some: str, others: str) -> str:
    """Return an expression: 1 if ``some`` has fewer rows than ``others``, else 0; compared by order of magnitude.

    Each count stops shortly after the length of the shorter way.
    """
    counted = "(SELECT count(*) FROM ({} LIMIT {}) n)"
    levels = "".join(
        f"""
  WHEN {counted.format(others, most + 1)} <= {most} THEN 0
  WHEN {counted.format(some, most + 1)} <= {most} THEN 1"""
        for most in _LEVELS
    )
    return f"CASE{levels} ELSE 0 END"


def nodes(dialect: Dialect) -> str:
    """Return the statement that reads each wanted entity and its ancestors, each once, with its parent."""
    columns = f"{NODE.format('g')}, g.parent_id"
    up = dialect.each("guard", "g", "g.id = up.parent_id AND g.id <> 0")
    return dialect.statement(f"""WITH RECURSIVE up AS (
  SELECT {columns} FROM guard g WHERE g.id IN ({dialect.select_ids})
  -- not ALL: the parent of many is looked up once, and a circle of parents in a damaged table ends
  UNION
  SELECT {columns} FROM up {up})
SELECT * FROM up WHERE id <> 0""")


def decoded(rows: Iterable[Sequence[Any]]) -> RightRows:
    """Return the rights in the statement's rows."""
    rights = RightRows([], [], [], [])
    for what, one, other, number, word, name in rows:
        if what == _MEMBER:
            rights.members.append(MembershipRow(one, word, name, other, bool(number)))
        elif what == _ROLE:
            rights.roles.append(RoleRow(one, other, name, number))
        elif what == _OWNER:
            rights.owners.append((one, other))
        else:
            rights.grants.append(GrantRow(one, word, other))
    rights.members.sort(key=lambda member: member.kind != "user")
    return rights
