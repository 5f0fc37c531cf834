"""Remember where entities and paths were last seen. Such a guess saves a read."""

from __future__ import annotations

from collections.abc import Hashable

from metastore.operation.hot import ForgetfulMap
from metastore.port.records import Lookup, Node


class Recent:
    """The nodes that last led to scopes, for calls with an old entity and creates by path."""

    def __init__(self) -> None:
        self._chains: ForgetfulMap[tuple[Node, ...]] = ForgetfulMap()
        self._led: ForgetfulMap[tuple[Node, ...]] = ForgetfulMap()

    def clear(self) -> None:
        """Forget everything."""
        self._chains.clear()
        self._led.clear()

    def note(self, chain: tuple[Node, ...]) -> None:
        """Note the nodes that lead to a scope; the last one is the scope."""
        self._chains.set(chain[-1].id, chain)

    def note_path(self, path: Hashable, chain: tuple[Node, ...]) -> None:
        """Note the nodes that a whole path led to."""
        self._led.set(path, chain)

    def note_parents(self, path: Lookup, nodes: tuple[Node, ...]) -> None:
        """Note the nodes above the entity at a path, or forget them if they are gone."""
        above = len(path.names) - 1
        if not above:
            return
        parents, found = Lookup(path.families[:-1], path.names[:-1], path.start), nodes[:above]
        if len(found) < above:
            self.forget(parents)
        else:
            known = self._led.get(parents)
            # one tuple for all requests, because a batch compares by identity
            self._led.set(parents, known if known == found else found)

    def forget(self, path: Hashable) -> None:
        """Forget the nodes of a path: it leads elsewhere now, or nowhere."""
        self._led.pop(path, None)

    def at(self, path: Hashable) -> tuple[Node, ...] | None:
        """Return the nodes to which a path last led. The guards check in the commit whether it still leads there."""
        return self._led.get(path)

    def of(self, entity_id: int) -> tuple[Node, ...] | None:
        """Return the nodes that led to an entity when it was last seen."""
        return self._chains.get(entity_id)

    def chain(self, chain: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return the newest nodes known that lead to the last of ``chain``."""
        if not chain:
            return chain
        known = self._chains.get(chain[-1].id)
        return chain if known is None or known[-1].scope_version < chain[-1].scope_version else known
