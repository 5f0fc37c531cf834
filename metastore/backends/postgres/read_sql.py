"""The statements that walk the tree on PostgreSQL: down a path, up from an id, through the children.

A prepared statement keeps its plan, which may be from a time when the tables were almost empty. Then a scan of all
guards of a family costs no more than a look-up, and the plan keeps it until the next ANALYZE. A lateral sub-select that
cannot be merged into its query (OFFSET 0) leaves the planner one choice: for each row on the left, look up by the whole
condition.
"""

from __future__ import annotations

from collections.abc import Sequence

from metastore.backends.sql.dialect import Dialect
from metastore.backends.sql.reads import ENTITY, NODE, OWNED, STEPS, ReadSql, level
from metastore.cached import cached_property
from metastore.port.conditions import LIVE
from metastore.port.unreadable import DEEPEST


def each(table: str, alias: str, condition: str) -> str:
    """Return a join item: for each row on its left, the rows of ``table`` that meet ``condition``; see the module."""
    return f"LATERAL (SELECT * FROM {table} {alias} WHERE {condition} OFFSET 0) {alias}"


class _PostgresRead(ReadSql):
    def _path(self, depth: int) -> str:
        levels = "".join(f"LEFT JOIN {each('guard', f'g{n}', level(n))} ON true\n" for n in range(2, depth + 1))
        return f"""guard g1
{levels}LEFT JOIN {each("entity", "e", f"e.id = g{depth}.id")} ON true
WHERE g1.parent_id = :start AND g1.family = :f1 AND g1.state = 0 AND g1.key = :n1"""

    def _places(self, columns: Sequence[str]) -> str:
        return f"(SELECT unnest(ARRAY[{', '.join(columns)}]) AS id FROM path) AS w"

    def resolve_many(self, depth: int) -> str:
        """Many paths through the same families, in their order: the nodes of each, and the entity of the last node."""
        nodes = ", ".join(NODE.format(f"g{n}") for n in range(1, depth + 1))
        arrays = ["%(n1)s::text[]", *[f"%({which}{n})s::text[]" for n in range(2, depth + 1) for which in "nk"]]
        columns = ["n1", *[f"{which}{n}" for n in range(2, depth + 1) for which in "nk"]]
        first = "g1.parent_id = :start AND g1.family = :f1 AND g1.state = 0 AND g1.key = w.n1"
        levels = "".join(f"LEFT JOIN {each('guard', f'g{n}', level(n, 'w.'))} ON true\n" for n in range(2, depth + 1))
        return self.dialect.statement(f"""SELECT {nodes}, {ENTITY}
FROM unnest({", ".join(arrays)}) WITH ORDINALITY AS w({", ".join(columns)}, n)
LEFT JOIN {each("guard", "g1", first)} ON true
{levels}LEFT JOIN {each("entity", "e", f"e.id = g{depth}.id")} ON true
ORDER BY w.n""")

    def _by_id(self, *, held: bool) -> str:
        columns = "g.id, g.parent_id, g.kind, g.name, g.scope_version, g.in_use, g.fold, g.state"
        return self.dialect.statement(f"""WITH RECURSIVE up AS (
  -- from each entity up to the root, one guard at a time; a chain that is deeper than any path can be is damaged
  SELECT g.id AS wanted, 0 AS height, {columns} FROM guard g WHERE g.id = ANY(%(ids)s::bigint[])
  UNION ALL
  SELECT up.wanted, up.height + 1, {columns}
  FROM up CROSS JOIN {each("guard", "g", "g.id = up.parent_id")} WHERE up.parent_id <> 0 AND up.height < {DEEPEST})
SELECT up.wanted, up.state, {NODE.format("up")}, {ENTITY}{self._counted(held)}
FROM up LEFT JOIN {each("entity", "e", "e.id = up.id AND up.height = 0")} ON true
-- from the root down; the entity's row is joined to its own guard only
WHERE up.id <> 0 ORDER BY up.wanted, up.height DESC""")

    def _among(self, only: bool, few: bool) -> tuple[str, str]:
        ids = self.dialect.select_chosen
        if only and few:
            return f"({ids}) w CROSS JOIN {each('guard', 'g', 'g.id = w.id')}", ""
        # CASE: a hash table of the ids is probed for each child in the order of names, and no join can replace that
        return "guard g", f" AND CASE WHEN g.id IN ({ids}) THEN {only} ELSE {not only} END"

    def _children(self, state: int, source: str, among: str) -> str:
        after = (
            "g.key > :after_key" if state == LIVE else f"g.state <> {LIVE} AND (g.key, g.id) > (:after_key, :after_id)"
        )
        return f"""SELECT g.key AS k, {NODE.format("g")}, g.state, {ENTITY}
  FROM (SELECT g.* FROM {source} WHERE g.parent_id = :parent_id AND g.family = :family AND g.kind = :kind
    AND g.state = {state} AND {after}{among} ORDER BY {"g.key" if state == LIVE else "g.key, g.id"} LIMIT :page_size) g
  CROSS JOIN {each("entity", "e", "e.id = g.id")}"""

    @cached_property
    def owned_by_name(self) -> str:
        wanted = "o.owner_id = w.owner_id AND o.kind = :kind AND o.name = w.name"
        found = self.dialect.each("owned", "o", wanted)
        return self.dialect.statement(f"SELECT w.n, {OWNED} FROM {self.dialect.w_owned} {found}")

    @cached_property
    def named_steps(self) -> str:
        entity, owned = each("entity", "e", "e.id = o.entity_id"), each("owned", "w", "w.id = o.entity_id")
        return STEPS.format(f"LEFT JOIN {entity} ON true LEFT JOIN {owned} ON true")


_EACH = each("{table}", "{alias}", "{condition}")
READ = _PostgresRead(
    Dialect(
        parameter="%(name)s",
        join=f"CROSS JOIN {_EACH}",
        left_join=f"LEFT JOIN {_EACH} ON true",
        array="json_build_array",
        gathered="json_agg",
        nested="",
        text="::text",
        fits="{} LIKE {}::text",
        contains="strpos({}, {}::text) > 0",
        distinct="DISTINCT ON (c.key, c.entity_id)",
        held="""SELECT count(*) FROM guard WHERE id = ANY(%(guard_ids)s::bigint[])
    AND scope_version = (%(guard_scopes)s::bigint[])[array_position(%(guard_ids)s::bigint[], id)]""",
        select_ids="SELECT unnest(%(ids)s::bigint[])",
        select_chosen="SELECT unnest(%(chosen)s::bigint[]) AS id",
        w_ids="(SELECT unnest(%(ids)s::bigint[]) AS id) AS w",
        w_places="unnest(:places::bigint[]) AS w(id)",
        w_names="unnest(%(names)s::text[]) AS w(name)",
        w_slots="unnest(%(from_ids)s::bigint[], %(slots)s::bigint[]) AS w(from_id, slot)",
        w_owned="unnest(%(owner_ids)s::bigint[], %(names)s::text[]) WITH ORDINALITY AS w(owner_id, name, n)",
        in_families="g.family = ANY(:families::text[])",
        in_kinds="(:kinds::text[] IS NULL OR n.kind = ANY(:kinds::text[]))",
        w_paths=lambda columns: (
            f"unnest({', '.join(['%(start)s::bigint[]', *[f'%({c})s::text[]' for c in columns]])}) WITH ORDINALITY"
            f" AS w(start, {', '.join(columns)}, n)"
        ),
    )
)
