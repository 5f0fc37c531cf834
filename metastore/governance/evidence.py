"""The evidence of decisions about one user: remembered facts about objects, and the guards that keep them true.

Remembered facts are only a guess. A mutation that relies on them guards their scope versions in its own statement, and
a read asks the database whether they still hold. Before an access is refused, the facts are read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from metastore.cached import cached_property
from metastore.governance.decision import Facts, Granted, Has, Level, Member, Ruling, sees
from metastore.governance.privileges import effect_of
from metastore.names import clean_name, exact_text, format_path, parse_path
from metastore.port.backend import Rights
from metastore.port.records import Lookup, Node
from metastore.port.reserved import ReservedIds
from metastore.port.rights import Chosen, RightRows, Whose
from metastore.port.scopes import Scopes

__all__ = ["KnownFacts", "Memory", "Nodes", "Remembered", "Who", "evidence", "evidence_at", "seen_among", "who"]

Nodes = tuple[Node, ...]
_MOST: Final = 10_000
"""How many facts, and how many paths, are remembered for one user."""
_HEAVIEST: Final = 50_000
"""How many roles and grants all these facts may have, where those of each object count separately."""
_LISTINGS: Final = 100
"""How many listings are remembered; each may have thousands of children."""
_USERS: Final = 1_000
"""How many users are remembered."""
_THEMSELVES: Final = ("user", "group", "role")
"""A user sees itself, its groups and its roles, whatever is granted."""
_CHILD: Final = -1
"""The id of any child, in decisions about many children."""


class Who(NamedTuple):
    """A user, by its name in any metalake, or in one metalake, or by ids.

    If ids are given, all users with these ids must have the name.
    """

    name: str
    lake: str | None = None
    ids: frozenset[int] | None = None


@dataclass(frozen=True)
class KnownFacts:
    """The facts about one object, the nodes that lead to it, and the scope versions that the facts depend on."""

    nodes: Nodes
    facts: Facts
    scopes: Mapping[int, int]
    """The scope versions of the members and the roles."""
    alike: object = field(default=None, compare=False)
    """A key that is equal for objects of one kind and parent in one read, without grants or owners of their own.

    The user sees all these objects or none, for the same reasons. None: the object needs its own decision."""
    granted: dict[tuple[str, str], Scopes | None] = field(init=False, default_factory=dict, compare=False)
    """By operation and kind, once decided: the scope versions to guard (see ``guards``); None: not allowed."""

    @cached_property
    def seen(self) -> list[Ruling]:
        """The rulings on whether the user sees the object."""
        return sees(self.facts)

    def seen_as(self, other: KnownFacts) -> None:
        """Take over the rulings of an ``alike`` object that the user sees: they depend only on levels above both."""
        self.__dict__.update(seen=other.seen, seen_by=other.seen_by)

    @property
    def first_hidden(self) -> int:
        """The index of the first node on the path that the user does not see; the number of nodes if it sees all."""
        return next((n for n in range(len(self.nodes)) if not sees(self.facts, n)[-1].allowed), len(self.nodes))

    @cached_property
    def seen_by(self) -> Scopes:
        """The scope versions that let the user see the object, without those of the nodes.

        They are sorted by id. Empty: the user does not see the object.
        """
        return self.rests_on(self.seen).sorted() if self.seen[-1].allowed else Scopes()

    @cached_property
    def stands(self) -> Scopes:
        """The scope versions of the nodes."""
        return Scopes([(node.id, node.scope_version) for node in self.nodes])

    def rests_on(self, rulings: Iterable[Ruling]) -> Scopes:
        """Return the scope versions that must hold for ``rulings``, without those of the nodes."""
        roles = frozenset[int]().union(*[ruling.roles for ruling in rulings])
        members = [member.id for member in self.facts.members]
        return Scopes([(i, self.scopes[i]) for i in (*members, *roles)])

    def guards(self, rulings: Iterable[Ruling]) -> Scopes:
        """Return all scope versions that must hold for ``rulings``. (The nodes may have been read earlier.)"""
        return Scopes.older([self.stands, self.rests_on(rulings)])

    def stands_at(self, nodes: Nodes) -> bool:
        """Whether the facts are about the object at the end of these nodes, and no node has changed since."""
        return self.nodes == nodes or [n[:4] for n in self.nodes] == [n[:4] for n in nodes]

    def owning(self, ids: Iterable[int]) -> KnownFacts:
        """Return the same facts with the user as the owner of these levels, too."""
        if not self.facts.members:
            return self
        owners = {**dict.fromkeys(ids, self.facts.members[0].id), **self.facts.owners}
        return replace(self, facts=replace(self.facts, owners=owners), alike=None)

    def exceptions(self, kind: str) -> tuple[bool, frozenset[int]]:
        """Return whether the user sees a usual child of the object, and the ids of children with the opposite answer.

        The facts must include those about the children. It does not matter here which role grants a privilege. So one
        of many equal grants is enough, and children with the same privileges are decided once: a user may have 10,000
        roles.
        """
        facts, above = self.facts, {node.id for node in self.nodes}
        on: dict[int, dict[tuple[str, bool], Granted]] = {}
        for grant in facts.grants:
            if grant.role in facts.role_names:
                on.setdefault(grant.on, {}).setdefault((grant.privilege, grant.allow), grant)
        of_all = [grant for node in self.nodes for grant in on.get(node.id, {}).values()]
        owners = {i: owner for i, owner in facts.owners.items() if i in above}
        usually = self._sees_child(kind, of_all, owners)
        itself = {"role": facts.role_names, "user": facts.active, "group": facts.active}.get(kind, {})
        rulings: dict[tuple[object, ...], bool] = {}
        different = set[int]() if usually else set(itself)
        for i in {*on, *facts.owners} - above - set(itself):
            grants, owner = on.get(i, {}), facts.owners.get(i)
            owned = owner if owner in facts.active else None
            alike = (owned is not None, *sorted(grants))
            if alike not in rulings:
                mine = [grant._replace(on=_CHILD) for grant in grants.values()]
                own = owners if owned is None else {**owners, _CHILD: owned}
                rulings[alike] = self._sees_child(kind, [*of_all, *mine], own)
            if rulings[alike] != usually:
                different.add(i)
        return usually, frozenset(different)

    def _sees_child(self, kind: str, grants: Iterable[Granted], owners: Mapping[int, int]) -> bool:
        chain = (*self.facts.chain, Level(_CHILD, kind, ""))
        return sees(replace(self.facts, chain=chain, grants=tuple(grants), owners=owners))[-1].allowed


class Remembered:
    """The facts that were read last for one user, and the entities to which paths led. Threads share it."""

    def __init__(self) -> None:
        self.known: dict[int, KnownFacts] = {}
        """The facts by the id of the object."""
        self.chosen: dict[tuple[int, str], Chosen] = {}
        """By the id of the parent and the kind: the children that were shown last."""
        self._paths: dict[Lookup, int] = {}
        self._weight = 0
        """An upper limit of the number of roles and grants in ``known``."""

    def clear(self) -> None:
        """Forget everything."""
        self.known.clear()
        self.chosen.clear()
        self._paths.clear()
        self._weight = 0

    def note(self, known: KnownFacts) -> None:
        """Remember facts. Facts about a user with many roles are large, so fewer of them are remembered."""
        weight = self._weight + 1 + len(known.facts.roles) + len(known.facts.grants)
        if len(self.known) >= _MOST or weight > _HEAVIEST:
            self.known.clear()
            weight -= self._weight
        self._weight = weight
        self.known[known.nodes[-1].id] = known

    def at(self, path: Lookup) -> KnownFacts | None:
        """Return the remembered facts about the object to which a path led; None: there are none."""
        entity_id = self._paths.get(path)
        return None if entity_id is None else self.known.get(entity_id)

    def led(self, path: Lookup, entity_id: int) -> None:
        """Remember the entity to which a path led."""
        if len(self._paths) >= _MOST:
            self._paths.clear()
        self._paths[path] = entity_id

    def chose(self, parent_id: int, kind: str, chosen: Chosen | None) -> None:
        """Remember which children are shown; if ``chosen`` is None, forget them, so that they are read again."""
        if chosen is None:
            self.chosen.pop((parent_id, kind), None)
            return
        if len(self.chosen) >= _LISTINGS:
            self.chosen.clear()
        self.chosen[parent_id, kind] = chosen


class Memory:
    """The facts that one store remembers about the rights of its users."""

    def __init__(self) -> None:
        self._users: dict[Who, Remembered] = {}
        self.reserved = ReservedIds()
        """The ids for entities that users create."""

    def clear(self) -> None:
        """Forget everything, including the reserved ids."""
        for remembered in list(self._users.values()):
            remembered.clear()
        self.reserved.clear()

    def of(self, who: Who) -> Remembered:
        """Return the remembered facts of one user."""
        remembered = self._users.get(who)
        if remembered is None:
            if len(self._users) >= _USERS:
                self._users.clear()
            remembered = self._users.setdefault(who, Remembered())
        return remembered


def evidence(reads: Rights, who: Who, chains: Sequence[Nodes], below: int | None = None) -> list[KnownFacts]:
    """Read the facts about the objects at the ends of ``chains``: one round trip for each metalake among them."""
    by_lake = _rows(reads, who, chains, below)
    return [by_lake[chain[0].id].known(chain, everything=below is not None) for chain in chains]


def _rows(reads: Rights, who: Who, chains: Iterable[Nodes], below: int | None = None) -> dict[int, _Rows]:
    """Read the rows about the nodes of ``chains``, by the id of the metalake."""
    places: dict[int, set[int]] = {}
    for chain in chains:
        places.setdefault(chain[0].id, set()).update([node.id for node in chain])
    return {lake: _Rows(who, reads.rights(Whose(lake, who.name), sorted(ids), below)) for lake, ids in places.items()}


def seen_among(reads: Rights, who: Who, chains: Mapping[int, Nodes]) -> set[int]:
    """Read which of the objects at the ends of ``chains`` the user sees, with one round trip for each metalake."""
    by_lake = _rows(reads, who, chains.values())
    return {i for i, chain in chains.items() if by_lake[chain[0].id].sees(chain)}


def evidence_at(who: Who, chain: Nodes, rows: RightRows) -> KnownFacts:
    """Return the facts about the object at the end of ``chain``, from rows that were read with it."""
    return _Rows(who, rows).known(chain, everything=False)


class _Rows:
    """The rows of one metalake about a user, indexed for look-ups."""

    def __init__(self, who: Who, rows: RightRows) -> None:
        self._who = who
        self._read = object()
        self._members = tuple([Member(row.id, row.kind, row.name, row.enabled) for row in rows.members])
        self._roles = tuple([Has(row.member, row.id, row.name) for row in rows.roles])
        self._scopes = {row.id: row.scope_version for row in rows.members} | {r.id: r.scope_version for r in rows.roles}
        self._owners = dict(rows.owners)
        self._all = tuple([Granted(row.role, *effect_of(row.value), row.on) for row in rows.grants])
        self._grants: dict[int, list[Granted]] = {}
        for grant in self._all:
            self._grants.setdefault(grant.on, []).append(grant)
        self._at: dict[tuple[int, ...], tuple[Granted, ...]] = {}
        self._decides: dict[int, tuple[Granted, ...]] = {}
        self._anywhere = Facts(who.name, (), self._members, self._roles)
        self._seen: dict[tuple[int, str], bool] = {}
        """By parent and kind: whether the user sees objects without grants or owners of their own."""
        self._above: dict[Nodes, Facts] = {}
        """The facts about parents. Objects without grants or owners of their own share those of their parent."""

    def known(self, nodes: Nodes, *, everything: bool) -> KnownFacts:
        """Return the facts about the object at the end of ``nodes``; with ``everything``, also about its children."""
        own = nodes[-1]
        if everything or self._is_special(nodes):
            return KnownFacts(nodes, self._facts(nodes, everything=everything), self._scopes)
        above = self._above.get(nodes[:-1])
        if above is None:
            above = self._above[nodes[:-1]] = self._facts(nodes[:-1], everything=False)
        chain = (*above.chain, Level(own.id, own.kind, format_path([node.name for node in nodes])))
        facts = Facts(above.user, chain, above.members, above.roles, above.owners, above.grants)
        return KnownFacts(nodes, self._shared(facts), self._scopes, (self._read, nodes[:-1], own.kind))

    def _is_special(self, nodes: Nodes) -> bool:
        """Whether an object needs its own decision, as metalakes, principals, and objects with grants or owners do."""
        own = nodes[-1]
        return len(nodes) == 1 or own.kind in _THEMSELVES or own.id in self._grants or own.id in self._owners

    def sees(self, nodes: Nodes) -> bool:
        """Whether the user sees the object at the end of ``nodes``; siblings of one kind are decided once."""
        if self._is_special(nodes):
            return sees(self._facts(nodes, everything=False))[-1].allowed
        key = (nodes[-2].id, nodes[-1].kind)
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = self.known(nodes, everything=False).seen[-1].allowed
        return seen

    def _facts(self, nodes: Nodes, *, everything: bool) -> Facts:
        names = [node.name for node in nodes]
        chain = tuple([Level(n.id, n.kind, format_path(names[: i + 1])) for i, n in enumerate(nodes)])
        if not self._members or not _is_meant(self._who, nodes, self._members[0]):
            return Facts(self._who.name, chain)
        owners = self._owners if everything else {p.id: self._owners[p.id] for p in chain if p.id in self._owners}
        grants = self._all if everything else self._granted(tuple([p.id for p in chain if p.id in self._grants]))
        return self._shared(Facts(self._who.name, chain, self._members, self._roles, owners, grants))

    def _granted(self, places: tuple[int, ...]) -> tuple[Granted, ...]:
        """Return the grants at some places: many objects below share this tuple."""
        if places not in self._at:
            self._at[places] = tuple([grant for place in places for grant in self._deciding(place)])
        return self._at[places]

    def _deciding(self, place: int) -> tuple[Granted, ...]:
        """Return the grants at a place that can decide. If 1,666 roles allow the same there, one grant is enough.

        A decision takes the first grant that denies something, and otherwise the grant with the lowest role id.
        """
        if place not in self._decides:
            found: dict[tuple[str, bool], Granted] = {}
            for grant in self._grants[place]:
                if grant.role in self._anywhere.role_names:
                    what = (grant.privilege, grant.allow)
                    if what not in found or (grant.allow and grant.role < found[what].role):
                        found[what] = grant
            self._decides[place] = tuple(found.values())
        return self._decides[place]

    def _shared(self, facts: Facts) -> Facts:
        """Let objects share the values that depend only on members and roles: for 1,666 roles, they take 80 kB."""
        if facts.members:
            one = self._anywhere
            facts.__dict__.update(active=one.active, role_names=one.role_names, members_with=one.members_with)
        return facts


def _is_meant(who: Who, nodes: Nodes, user: Member) -> bool:
    return who.lake in (None, nodes[0].name) and (who.ids is None or user.id in who.ids)


def who(user: object) -> Who:
    """Return the user with a bare name, or with a path (a tuple of names)."""
    # any text is a name, whatever characters it has: they must not turn a signed-in user into another one
    if isinstance(user, str):
        return Who(clean_name(exact_text(user, "a user")))
    *lake, name = parse_path(user)
    return Who(name, ".".join(lake) or None)
