"""Decide what one user may see and do, from facts that are read once, remembered, and guarded where they matter.

A read asks the database, within the call, whether its evidence still holds. A mutation gets the scope versions of its
evidence as guards, which its own statement locks and compares. A call that takes a right away increases one of these
scope versions. So once that call has returned, no other call can still use the right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from copy import copy
from types import TracebackType
from typing import NamedTuple

from metastore.block import Block
from metastore.errors import EntityNotFound, PermissionDenied
from metastore.governance.decision import Decision, Ruling, decide
from metastore.governance.evidence import KnownFacts, Memory, Nodes, Who, evidence, evidence_at, seen_among
from metastore.governance.privileges import OWNERSHIP, REVEAL, is_used_below, needs_of
from metastore.governance.users import users_named
from metastore.port.backend import Backend
from metastore.port.conditions import ROOT_ID
from metastore.port.records import Lookup
from metastore.port.rights import Chosen, RightRows
from metastore.port.scopes import Scopes

__all__ = ["Access", "Evidence", "Probed", "Want", "guesses", "guessing"]


class _Guessing(Block):
    """A block in which reads may guess. An interrupt may leave it in the context, but then it no longer runs."""

    __slots__ = ("allowed", "around", "guessed")

    def __init__(self, *, allowed: bool) -> None:
        self.allowed = allowed
        self.guessed = list[bool]()

    def __enter__(self) -> list[bool]:
        self.around = _Guessing.innermost()
        _guesses.set(self)
        return self.guessed

    def end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _guesses.set(self.around)

    @staticmethod
    def innermost() -> _Guessing | None:
        """Return the innermost block that runs."""
        block = _guesses.get()
        while block is not None and not block.runs:
            block = block.around
        return block


_guesses: ContextVar[_Guessing | None] = ContextVar("guesses", default=None)


def guessing(allowed: bool) -> _Guessing:
    """Let reads in a block trust remembered evidence, if ``allowed``. Its list has an item for each guess."""
    return _Guessing(allowed=allowed)


def guesses() -> list[bool] | None:
    """Return the list in which reads of such a block note their guesses; None: reads must check their evidence."""
    block = _Guessing.innermost()
    return block.guessed if block is not None and block.allowed else None


class Want(NamedTuple):
    """A write's action on an object, for which the user needs a right.

    ``operation`` is one of :data:`metastore.governance.privileges.OPERATIONS`, or of those in :meth:`any_of`. ``kind``:
    the kind of the entity to create below the object, or of the row that the object owns.
    """

    on: int
    operation: str
    kind: str = ""

    def any_of(self, on: str) -> tuple[str, ...]:
        """Return the privileges at an object of the kind ``on``; any one of them is enough."""
        if self.operation == "create":
            return needs_of(self.kind).create
        if self.operation == "row":
            return needs_of(on).own.get(self.kind, ())
        if self.operation == "member":
            return ("manage_groups",) if on == "group" else ("manage_grants",)
        fixed = {"apply": (f"apply_{on}",), "grant": ("manage_grants",), "reveal": (REVEAL,), "own": ()}
        return fixed[self.operation] if self.operation in fixed else needs_of(on).of(self.operation)


class Probed(NamedTuple):
    """The facts that the read of some objects checked at the same instant, and whether all of them held."""

    scopes: Scopes
    held: bool


class Evidence(NamedTuple):
    """The evidence of a commit, which it must guard."""

    scopes: Scopes
    """The scope versions that it must guard."""
    guessed: bool
    """Whether they come from remembered facts."""
    known: Mapping[int, KnownFacts]
    """The facts about each object on which the commit needs a right, by the object's id."""


class Access:
    """The rights of one user. Threads may share it."""

    def __init__(self, backend: Backend, who: Who, memory: Memory | None = None) -> None:
        self.backend = backend
        self.who = who
        self.mine: set[int] | None = None
        """In a transaction: the ids of the entities that it created. The user owns them."""
        self.swaps = False
        """Whether it serves the Iceberg server: only that may change the metadata file of a table."""
        self.noted = Scopes()
        """In a transaction: the scope versions that its reads depend on."""
        self._memory = Memory() if memory is None else memory
        self._facts = self._memory.of(who)

    def through(self, backend: Backend) -> Access:
        """Return the same rights, read through another backend of the same database."""
        own = copy(self)
        own.backend = backend
        return own

    def of_transaction(self) -> Access:
        """Return the same rights for one transaction, which also guards the evidence of its reads."""
        own = copy(self)
        own.mine, own.noted = set(), Scopes()
        return own

    # --- facts

    def read(self, chains: Sequence[Nodes], below: int | None = None) -> list[KnownFacts]:
        """Read the facts about the objects at the ends of ``chains`` now, and remember them."""
        found = evidence(self.backend, self.who, chains, below) if chains else []
        if self.mine:
            return [known.owning(self.mine) for known in found]
        for known in found if below is None else ():
            self._facts.note(known)
        return found

    def remembered(self, entity_id: int) -> KnownFacts | None:
        """Return the last facts about an object; None: none are remembered."""
        return self._facts.known.get(entity_id)

    def led(self, path: Lookup, entity_id: int) -> None:
        """Remember the entity to which a path led."""
        self._facts.led(path, entity_id)

    def at(self, path: Lookup) -> KnownFacts | None:
        """Return the remembered facts about the entity at a path, if a read may check them in its own statement."""
        if guesses() is not None or self.mine is not None:
            return None
        known = self._facts.at(path)
        return known if known is not None and known.seen_by else None

    def is_new(self, path: Lookup) -> bool:
        """Whether a read of a path should read the rights, too: nothing is remembered about its entity.

        False if a commit guards the evidence, and in a transaction, which reads an overlay.
        """
        known = self._facts.at(path)
        return known is None and path.start.id == ROOT_ID and guesses() is None and self.mine is None

    def facts_now(self, chain: Nodes, rows: RightRows) -> KnownFacts:
        """Return the facts about the object at the end of ``chain``, which was read with ``rows``; remember them."""
        known = evidence_at(self.who, chain, rows)
        self._facts.note(known)
        return known

    def nodes_of(self, ids: Sequence[int]) -> dict[int, Nodes]:
        """Read the nodes that lead to objects, in any state; purged objects are left out."""
        rows = self.backend.by_id(ids) if ids else []
        return {i: row.record.chain for i, row in zip(ids, rows, strict=True) if row is not None}

    # --- seeing

    def may_guess(self, ids: Sequence[int]) -> bool:
        """Whether an attempt may assume that the user sees all these objects. If so, the guess is noted."""
        guessed = guesses()
        if guessed is None or self.mine is not None or not ids:
            return False
        all_known = [self.remembered(i) for i in ids]
        if not all(known is not None and known.seen_by for known in all_known):
            return False
        guessed.append(True)
        return True

    def chosen(self, parent_id: int, kind: str) -> Chosen | None:
        """Return the children of a kind that the user saw last; None: nothing is remembered."""
        return self._facts.chosen.get((parent_id, kind))

    def chose(self, parent_id: int, kind: str, chosen: Chosen | None) -> None:
        """Remember the children of a kind that the user sees; ``chosen`` is None if it does not see the parent."""
        self._facts.chose(parent_id, kind, chosen)

    def probe(self, ids: Sequence[int]) -> Scopes:
        """Return the scope versions that a read of these objects can check in its own statement.

        They are empty if the commit guards them, if nothing is remembered, if the remembered facts disagree, and in a
        transaction, which reads an overlay.
        """
        if guesses() is not None or self.mine is not None:
            return Scopes()
        return Scopes.agreed([k.seen_by for i in ids if (k := self.remembered(i)) is not None]) or Scopes()

    def visible(self, chains: Sequence[Nodes], probed: Probed | None = None) -> list[KnownFacts | None]:
        """Return the facts about each object that the user sees; None for other objects. See ``facts``.

        ``alike`` objects are decided once: a page of the feed may have hundreds below one parent.
        """
        first: dict[object, KnownFacts] = {}
        found = list[KnownFacts | None]()
        for known in self.facts(chains, probed):
            like = known if known.alike is None else first.setdefault(known.alike, known)
            seen = like.seen[-1].allowed
            if seen and like is not known:
                known.seen_as(like)
            found.append(known if seen else None)
        return found

    def seen_now(self, ids: Sequence[int]) -> set[int]:
        """Return the ids of those objects that the user sees now, in any state.

        The facts are not remembered: a page of the feed may have thousands of objects.
        """
        chains = self.backend.nodes(ids) if ids else {}
        return seen_among(self.backend, self.who, chains)

    def facts(self, chains: Sequence[Nodes], probed: Probed | None = None) -> list[KnownFacts]:
        """Return the facts about each object.

        Read the objects first, so that no fact is older than an object.

        One read checks whether the remembered facts that allow the access still hold; all other facts are read.
        ``probed``: the facts that the read of the chains checked already.
        """
        found: dict[int, KnownFacts] = {}
        for n, chain in enumerate(chains):
            known = self.remembered(chain[-1].id)
            if known is not None and known.seen[-1].allowed and known.stands_at(chain):
                found[n] = known
        if found and not self._hold(Scopes.agreed([known.seen_by for known in found.values()]), probed):
            found = {}
        others = [n for n in range(len(chains)) if n not in found]
        found.update(zip(others, self.read([chains[n] for n in others]), strict=True))
        if self.mine is not None:
            for known in [known for known in found.values() if known.seen[-1].allowed]:
                self._note(known)
        return [found[n] for n in range(len(chains))]

    def _hold(self, rests: Scopes | None, probed: Probed | None) -> bool:
        """Whether all these scope versions hold. ``rests`` is None if remembered facts disagree: one is outdated."""
        if rests is None:
            return False
        guessed = guesses()
        if guessed is not None:
            guessed.append(True)  # the commit guards them; without a commit, the result is decided again
            return True
        if probed is not None and rests.all_in(probed.scopes):
            return probed.held
        return self.backend.hold(rests.sorted().pairs)

    def _note(self, known: KnownFacts) -> None:
        """Note the scope versions that a read of a transaction depends on."""
        self.noted = Scopes.older([self.noted, known.guards(known.seen)])

    # --- doing

    def guards(
        self, wants: Iterable[Want], held: Scopes, *, trusting: bool, nodes: Mapping[int, Nodes] | None
    ) -> Evidence:
        """Return the evidence of a commit.

        ``held``: the scope versions that the commit guards anyway. With ``trusting``, remembered facts are used if they
        allow everything. ``nodes``: the nodes that lead to the objects; None: they are read. Raises PermissionDenied;
        EntityNotFound for an object that the user does not see.
        """
        wanted = list(wants)
        if trusting:
            guess = self._remembered(wanted, held)
            if guess is not None:
                return guess
        if nodes is None:
            nodes = self.nodes_of(list(dict.fromkeys(want.on for want in wanted)))
        known = dict(zip(nodes, self.read(list(nodes.values())), strict=True))
        scopes = list[Scopes]()
        for want in wanted:
            if want.on not in known:
                raise _gone(want)
            scopes.append(known[want.on].guards(self.check(known[want.on], want)))
        return Evidence(Scopes.older(scopes).without(self.mine or ()), False, known)

    def _remembered(self, wants: Iterable[Want], held: Scopes) -> Evidence | None:
        """Return the evidence if the remembered facts allow everything, and agree with each other and with ``held``."""
        found: dict[int, KnownFacts] = {}
        scopes = list[Scopes]()
        for want in wants:
            known = self.remembered(want.on)
            rests = None if known is None else _granted(known, want)
            if known is None or rests is None:
                return None
            scopes.append(rests)
            found[want.on] = known
        all_of_it = Scopes.agreed(scopes)
        return None if all_of_it is None or not all_of_it.agrees(held) else Evidence(all_of_it, True, found)

    def check(self, known: KnownFacts, want: Want) -> list[Ruling]:
        """Return the rulings that allow it. Raises PermissionDenied; EntityNotFound if the user does not see it."""
        rulings = _rulings(known, want)
        if rulings[-1].allowed:
            return rulings
        if not known.seen[-1].allowed:
            raise _gone(want)
        raise self.denied(known, want, rulings[-1])

    def denied(self, known: KnownFacts, want: Want, ruling: Ruling) -> PermissionDenied:
        """Return the error for an action that the user may not do to an object that it sees."""
        path = known.facts.object.path
        privilege = ruling.missing[0] if ruling.missing is not None else OWNERSHIP
        words = " or ".join(want.any_of(known.nodes[-1].kind))
        of_lake = _is_asked_of_lake(want.operation, known.nodes[-1].kind)
        owned = f"the metalake of {path}" if of_lake else f"{path} or something above it"
        needs = f"needs {words} on {path}" if words else f"must own {owned}"
        message = f"{self.who.name} {needs}: {ruling.because}; ask an owner of it for the right"
        return PermissionDenied(self.who.name, privilege, path, message)

    def require(self, nodes: Nodes, want: Want) -> Scopes:
        """Return the scope versions behind the user's right to do this now to the object at the end of ``nodes``.

        Raises PermissionDenied, or EntityNotFound if the user does not see the object.
        """
        (known,) = self.read([nodes])
        return known.guards(self.check(known, want))

    def decision(self, nodes: Nodes, privilege: str) -> Decision:
        """Return whether the user may now use a privilege at an object or below it, and why."""
        (known,) = self.read([nodes])
        rulings = decide(known.facts, (privilege,), below=is_used_below(privilege, nodes[-1].kind))
        because = [ruling.because for ruling in rulings]
        return Decision(rulings[-1].allowed, because if rulings[-1].allowed else because[-1:])

    def metalakes(self) -> list[int]:
        """Return the ids of the metalakes that have a user of this name."""
        return [record.chain[0].id for record in users_named(self.backend, self.who.name)]

    # --- ids for an entity that is created together with its owner

    def made(self, entity_id: int) -> None:
        """Note that the user creates an entity with this id."""
        if self.mine is not None:
            self.mine.add(entity_id)

    def next_id(self) -> int:
        """Return a reserved id, which no other client gets."""
        return self._memory.reserved.next(self.backend)


def _gone(want: Want) -> EntityNotFound:
    """Return the error for a purged or hidden object by its id, because it may have got its path while hidden."""
    return EntityNotFound(str(want.on), f"the object with the id {want.on} is not there any more; load it again")


def _granted(known: KnownFacts, want: Want) -> Scopes | None:
    """Return the scope versions that must hold for a right; None: the facts do not allow it. Cached in the facts."""
    what = (want.operation, want.kind)
    if what not in known.granted:
        rulings = _rulings(known, want)
        known.granted[what] = known.guards(rulings) if rulings[-1].allowed else None
    return known.granted[what]


def _rulings(known: KnownFacts, want: Want) -> list[Ruling]:
    if want.operation == "see":
        return known.seen
    kind = known.nodes[-1].kind
    at = 0 if _is_asked_of_lake(want.operation, kind) else None
    return decide(known.facts, want.any_of(kind), at, below=want.operation == "create")


def _is_asked_of_lake(operation: str, kind: str) -> bool:
    if operation in ("rename", "restore") and needs_of(kind).named_by_lake:
        return True
    return operation in ("member", "restore") and kind == "role"  # who restores a role gives it to its members again
