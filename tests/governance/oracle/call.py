"""One call of a user: what it may show or do by the rules, and what it did."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import metastore as ms
from metastore import Store
from tests.governance.oracle.rules import Rules

__all__ = ["Call", "Shown", "outcome"]

Shown = frozenset[object]


@dataclass
class Call:
    """One call of a user. A reading one shows some of its candidates.

    A writing one is done, denied (the user sees what it names), or hidden (it does not).
    """

    what: str
    user: str
    run: Callable[[Store], Iterable[object]]
    """Return what was shown, or ``["done"]``."""
    wanted: Callable[[Rules], Iterable[object]]
    """Return the same by the rules, or ``["denied"]``, or ``["hidden"]``."""
    candidates: int = 1
    """How many decisions it is."""
    then: Callable[[], object] | None = None
    """Note in the sets what was done. Only a call that writes has it."""


def outcome(call: Call, store: Store) -> Shown:
    """Make the call; return what it showed or did."""
    try:
        return frozenset(call.run(store))
    except ms.PermissionDenied:
        return frozenset(["denied"])
    except (ms.EntityNotFound, ms.DropPending):
        return frozenset(["hidden"] if call.then is not None else [])
    except (ms.InvalidArgument, ms.VersionConflict):
        raise  # the tree became another one within the call
    except Exception as error:  # noqa: BLE001  (whatever it is, the rules do not say it)
        return frozenset([f"{type(error).__name__}: {str(error)[:200]}"])
