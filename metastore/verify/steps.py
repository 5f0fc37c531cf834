"""Check the columns that the past relies on: each step's place and name of its row, and the end of its commit.

A read of the past trusts these columns of ``operation`` (``backends/sql/past.py``): ``parent_id``, ``name``, ``fold``,
``state``, ``family``, ``key`` and ``through``. Each is checked against the event of its step, against the previous
step, and, for the newest step, against the present row. So the past at the newest position equals the present.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from metastore.errors import InvalidArgument
from metastore.kinds.registry import KINDS
from metastore.names import fold as folded
from metastore.names import parse_path
from metastore.port.conditions import DROPPED, DROPPING, LIVE, PURGING

__all__ = ["AUDIT", "Made", "Place", "Step", "Together", "made_problems", "now_problems", "place_problems"]

_MOVES = ("create", "move", "restore")
"""The actions after which a row may be below another parent, or have another fold flag."""
_TAKES = (*_MOVES, "rename")
"""The actions that take a name."""
_STATES = {"drop": (DROPPED, DROPPING), "purge": (PURGING,)}


class Step(Protocol):
    """The parts of a step that concern its place."""

    @property
    def version(self) -> int | None: ...
    @property
    def entity_id(self) -> int: ...
    @property
    def owner_id(self) -> int | None: ...
    @property
    def other_id(self) -> int | None: ...
    @property
    def time(self) -> int: ...
    @property
    def principal(self) -> str | None: ...
    @property
    def kind(self) -> str: ...
    @property
    def action(self) -> str: ...
    @property
    def path_before(self) -> str | None: ...
    @property
    def path_after(self) -> str | None: ...
    @property
    def parent_id(self) -> int | None: ...
    @property
    def name(self) -> str | None: ...
    @property
    def fold(self) -> bool | None: ...
    @property
    def state(self) -> int | None: ...
    @property
    def family(self) -> str | None: ...
    @property
    def key(self) -> str | None: ...


AUDIT = ("created_at", "modified_at", "created_by", "modified_by")
"""The columns of :class:`Made`."""


class Made(NamedTuple):
    """The principals that created a row and wrote it last, and the times."""

    created_at: int
    modified_at: int
    created_by: str | None
    modified_by: str | None


class Place(NamedTuple):
    """The present place of a row."""

    parent_id: int
    name: str
    fold: bool | None
    state: int
    family: str
    key: str


def place_problems(step: Step, before: Step | None, *, complete: bool, shown: bool) -> Iterator[str]:
    """Yield the contradictions between a step's place and its event, or the previous step.

    A step without a place is skipped: another check reports it. ``complete``: gc has not moved any name to a later
    step. ``shown``: the past is complete where the step begins; before that, an older program, or gc, may have left no
    name.
    """
    if step.parent_id is None or step.name is None or step.state is None:
        return
    where = f"version {step.version}"
    states = _STATES.get(step.action, (LIVE,))
    if step.owner_id is not None and step.action in _STATES:
        states = (DROPPED,)
    if step.state not in states:
        yield f"{where} ({step.action}) says that it left the row in the state {step.state}"
    if (name := _name(step)) is not None and name != step.name:
        yield f"{where} says that the name is {step.name!r}, and its path says {name!r}"
    if step.owner_id is not None and step.parent_id != step.owner_id:
        yield f"{where} says that it is below {step.parent_id}, and it belongs to {step.owner_id}"
    if step.owner_id is None:
        yield from _moved(step, before, where)
    yield from _name_problems(step, where, complete=complete, shown=shown)


def _name(step: Step) -> str | None:
    """Return the name of a row after a step, from its event; None: the event has no name."""
    if step.other_id is not None:
        return str(step.entity_id)
    try:
        return parse_path(step.path_after or step.path_before or "")[-1]
    except InvalidArgument:
        return None


def _moved(step: Step, before: Step | None, where: str) -> Iterator[str]:
    if step.fold is None:
        yield f"{where} does not say whether it folds names"
    if before is None or before.parent_id is None or before.version != (step.version or 0) - 1:
        return  # gc has removed the steps between them
    if step.action not in _MOVES and step.parent_id != before.parent_id:
        stood = f"but it was below {before.parent_id}"
        yield f"{where} ({step.action}) says that it is below {step.parent_id}, {stood}"
    if step.action not in _MOVES and None not in (step.fold, before.fold) and bool(step.fold) != bool(before.fold):
        yield f"{where} ({step.action}) says another fold flag than the version before it"


def _name_problems(step: Step, where: str, *, complete: bool, shown: bool) -> Iterator[str]:
    # these writes note a name: an exclusive operation that leaves an entity live, and every write of an owned row
    may = step.state == LIVE and (step.action != "alter" or step.owner_id is not None)
    if (step.family is None) != (step.key is None):
        yield f"{where} has a family without the key of its name, or a key without a family"
        return
    if step.key is None:
        if shown and step.state == LIVE and step.action in _TAKES:
            yield f"{where} ({step.action}) does not say which name it took"
        return
    if complete and shown and not may:  # a restore of an export adds the name to a row's newest step
        yield f"{where} ({step.action}) says that it took a name"
    family = KINDS[step.kind].family if step.kind in KINDS and step.owner_id is None else None
    family = step.kind if step.owner_id is not None else family
    if family is not None and step.family != family:
        yield f"{where} says that its family is {step.family!r} instead of {family!r}"
    if step.key not in (step.name, folded(step.name or "")):
        yield f"{where} says that the name {step.name!r} is compared as {step.key!r}"


def now_problems(last: Step, taken: Step | None, now: Place) -> Iterator[str]:
    """Yield how the newest step, and the step that took the name, differ from the row's present place."""
    if last.parent_id is None:
        return
    for what, said, is_ in (
        ("parent", last.parent_id, now.parent_id),
        ("name", last.name, now.name),
        ("fold flag", None if last.fold is None else bool(last.fold), now.fold),
        ("state", last.state, now.state),
    ):
        if said != is_:
            yield f"its {what} is {is_!r}, and the past says {said!r} since version {last.version}"
    if now.state == LIVE and taken is not None and (taken.family, taken.key) != (now.family, now.key):
        yield (
            f"its name is compared as {now.key!r} in the family {now.family}, and the past says {taken.key!r} in "
            f"{taken.family} since version {taken.version}"
        )


def made_problems(first: Step | None, last: Step, made: Made) -> Iterator[str]:
    """Yield how the steps differ from the row's columns about who created it and wrote it last, and when."""
    # an import keeps the original creator and time of a row, so the time may be before the first step
    if first is not None and first.version == 1 and made.created_at >= first.time:
        yield from _differs("created", (made.created_by, made.created_at), first)
    yield from _differs("modified", (made.modified_by, made.modified_at), last)


def _differs(what: str, said: tuple[str | None, int], step: Step) -> Iterator[str]:
    # if a change has no principal, only the row has a name: that of the helper
    if said[1] != step.time or step.principal not in (None, said[0]):
        yield f"it was {what} by {said[0]} at {said[1]}, and its history says: by {step.principal} at {step.time}"


class Together:
    """Follows the rows of one operation. All rows with a position must name the same last position of the commit.

    Rows up to ``past_from`` are not checked: older programs did not write that position, and no read relies on it.
    """

    def __init__(self, *, complete: bool, past_from: int) -> None:
        self._complete, self._past_from = complete, past_from
        self._count, self._last = 0, 0
        self._ordinals = set[int]()
        self._through = set[int | None]()

    def row(self, kind: str | None, ordinal: int, seq: int | None, through: int | None) -> None:
        """Take a row. Leases are not part of the past."""
        self._ordinals.add(ordinal)
        if seq is not None and kind != "lease":
            self._count += 1
            self._last = max(self._last, seq)
            self._through.add(through)

    def problems(self) -> Iterable[str]:
        """Yield the problems of the operation, after its last row. gc may have removed some of its rows."""
        if self._complete and self._ordinals != set(range(len(self._ordinals))):
            yield f"has the writes {sorted(self._ordinals)}, with gaps"
        if self._last <= self._past_from:  # also without any row
            return
        (through, *more) = self._through
        if more:
            yield f"its rows say different last positions: {sorted(map(str, self._through))}"
        elif self._complete and through != (self._last if self._count > 1 else None):
            yield f"says that its last position is {through}, and it is {self._last} of {self._count} rows"
        elif through is not None and through < self._last:
            yield f"says that its last position is {through}, and it has {self._last}"
