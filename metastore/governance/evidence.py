"""What decisions about one user rest on: facts by object, remembered, and the guards that keep them true.

Remembered facts serve as a guess only. A mutation that rests on them guards their scope versions in its own statement,
and a read asks the database whether they still hold. What the facts refuse is read again before it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from metastore.governance.decision import Facts, Granted, Has, Member, Place, Verdict
from metastore.governance.privileges import effect_of
from metastore.names import clean_name, format_path, parse_path
from metastore.port.backend import Rights
from metastore.port.records import Node
from metastore.port.rights import RightRows, Whose

__all__ = ["Known", "Memory", "Nodes", "Who", "evidence", "who"]

Nodes = tuple[Node, ...]
_MOST: Final = 10_000
"""How many objects the facts of one user are remembered for."""


class Who(NamedTuple):
    """The user that is meant: by its bare name in any metalake, or the one in the metalake of this name, or this id."""

    name: str
    lake: str | None = None
    id: int | None = None


@dataclass(frozen=True)
class Known:
    """The facts about one object, the nodes that lead to it, and the scope versions on which the facts rest."""

    nodes: Nodes
    facts: Facts
    scopes: Mapping[int, int]
    """Of the members and the roles."""

    def rests_on(self, verdicts: Iterable[Verdict]) -> dict[int, int]:
        """Return the scope versions that must hold for ``verdicts``, apart from those of the nodes."""
        roles = frozenset[int]().union(*[verdict.roles for verdict in verdicts])
        members = [member.id for member in self.facts.members]
        return {i: self.scopes[i] for i in (*members, *roles)}

    def guards(self, verdicts: Iterable[Verdict]) -> dict[int, int]:
        """Return all scope versions that must hold for ``verdicts``."""
        return {**{node.id: node.scope_version for node in self.nodes}, **self.rests_on(verdicts)}

    def stands_at(self, nodes: Nodes) -> bool:
        """Whether the facts are about an object at the end of these nodes, as they are."""
        return self.nodes is nodes or [n[:4] for n in self.nodes] == [n[:4] for n in nodes]

    def owning(self, ids: Iterable[int]) -> Known:
        """Return the facts about a user that owns these places too."""
        if not self.facts.members:
            return self
        owners = {**dict.fromkeys(ids, self.facts.members[0].id), **self.facts.owners}
        return replace(self, facts=replace(self.facts, owners=owners))

    def child(self, entity_id: int, kind: str) -> Facts:
        """Return the facts about a child of the object."""
        return replace(self.facts, chain=(*self.facts.chain, Place(entity_id, kind, "")))


class Memory:
    """The facts that were read last, by object."""

    def __init__(self) -> None:
        self._known: dict[int, Known] = {}

    def get(self, entity_id: int) -> Known | None:
        """Return what is remembered about an object."""
        return self._known.get(entity_id)

    def note(self, known: Known) -> None:
        """Remember facts."""
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[known.nodes[-1].id] = known

    def forget(self, entity_id: int) -> None:
        """Forget what turned out to be old."""
        self._known.pop(entity_id, None)


def evidence(reads: Rights, who: Who, chains: Sequence[Nodes], below: int | None = None) -> list[Known]:
    """Read the facts about the objects at the ends of ``chains``: one round trip for each metalake among them."""
    places: dict[int, set[int]] = {}
    for chain in chains:
        places.setdefault(chain[0].id, set()).update([node.id for node in chain])
    rows = {lake: reads.rights(Whose(lake, who.name), sorted(ids), below) for lake, ids in places.items()}
    by_lake = {lake: _Rows(who, found) for lake, found in rows.items()}
    return [by_lake[chain[0].id].known(chain, everything=below is not None) for chain in chains]


class _Rows:
    """The rows of one metalake, in the order in which they are looked for."""

    def __init__(self, who: Who, rows: RightRows) -> None:
        self._who = who
        self._members = tuple([Member(row.id, row.kind, row.name, row.enabled) for row in rows.members])
        self._roles = tuple([Has(row.member, row.id, row.name) for row in rows.roles])
        self._scopes = {row.id: row.scope_version for row in rows.members} | {r.id: r.scope_version for r in rows.roles}
        self._owners = dict(rows.owners)
        self._all = tuple([Granted(row.role, *effect_of(row.value), row.on) for row in rows.grants])
        self._grants: dict[int, list[Granted]] = {}
        for grant in self._all:
            self._grants.setdefault(grant.on, []).append(grant)

    def known(self, nodes: Nodes, *, everything: bool) -> Known:
        """Return the facts about the object at the end of ``nodes``; with ``everything``, also about its children."""
        names = [node.name for node in nodes]
        chain = tuple([Place(n.id, n.kind, format_path(names[: i + 1])) for i, n in enumerate(nodes)])
        if not self._members or not _is_meant(self._who, nodes, self._members[0]):
            return Known(nodes, Facts(self._who.name, chain), {})
        owners = self._owners if everything else {p.id: self._owners[p.id] for p in chain if p.id in self._owners}
        grants = self._all if everything else tuple([g for p in chain for g in self._grants.get(p.id, ())])
        facts = Facts(self._who.name, chain, self._members, self._roles, owners, grants)
        return Known(nodes, facts, self._scopes)


def _is_meant(who: Who, nodes: Nodes, user: Member) -> bool:
    return who.lake in (None, nodes[0].name) and who.id in (None, user.id)


def who(user: object) -> Who:
    """Return who is meant by a bare name, a path of a user (a tuple, or with back-quotes), or an entity."""
    if isinstance(user, str) and "`" not in user:
        return Who(clean_name(user))
    *lake, name = parse_path(user)
    return Who(name, ".".join(lake) or None)
