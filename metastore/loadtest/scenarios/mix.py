"""``zipf``, and users' scenarios: a mix of operations on many tables, some of which are used more than others."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from metastore.columns.column import Column
from metastore.errors import InvalidArgument
from metastore.kinds.change import SetProperty
from metastore.loadtest.calls import Calls, Within
from metastore.loadtest.scenarios.scenario import Me, Scenario
from metastore.loadtest.scenarios.weights import Weighted, zipf
from metastore.loadtest.scenarios.whereabouts import Whereabouts
from metastore.store import Store

__all__ = ["READS", "WRITES", "Mix"]

READS: Final = ("load", "exists", "list")
WRITES: Final = ("alter", "create", "drop", "rename", "move", "transaction", "freeze")
_ID: Final = Column("id", "long")
_TTL: Final = 5.0


def _usual() -> dict[str, float]:
    return {"load": 1.0, "alter": 4.0, "create": 1.5, "drop": 1.5, "rename": 1.0}


@dataclass(frozen=True)
class Mix(Scenario):
    """Each operation is drawn by its weight, and its table by Zipf's law.

    ``reads`` percent are reads; ``weights`` are the relative frequencies of the kinds of reads, and of those of writes.
    Clients drop the tables that they created, so that the number of tables stays about the same.
    """

    name: str = "zipf"
    about: ClassVar[str] = "a mix over 100,000 tables, 80 % reads; --skew says how uneven"
    schemas: int = 100
    tables: int = 100_000
    skew: float = 0.99
    reads: float = 80.0
    think: float = 0.0
    """Seconds between two operations of a client, on average."""
    weights: dict[str, float] = field(default_factory=_usual)

    def parameters(self) -> dict[str, Any]:
        shares = self.shares()
        return {
            "schemas": self.schemas,
            "tables": self.tables,
            "skew": self.skew,
            "think": self.think,
            "shares": {action: round(share, 4) for action, share in shares.items() if share},
        }

    def check(self) -> None:
        for what, least in (("schemas", 1), ("tables", 1)):
            number = getattr(self, what)
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise InvalidArgument(f"{what} is an integer of at least {least}, not {number!r}")
        for what, most in (("skew", 10.0), ("reads", 100.0), ("think", 3600.0)):
            check_number(what, getattr(self, what), most)
        for action, weight in self.weights.items():
            if action not in (*READS, *WRITES):
                raise InvalidArgument(f"unknown operation {action!r}; known are {', '.join((*READS, *WRITES))}")
            check_number(f"the weight of {action}", weight, 1e9)
        for kind, share, actions in (("read", self.reads, READS), ("write", 100 - self.reads, WRITES)):
            if share and not any(self.weights.get(action, 0) for action in actions):
                raise InvalidArgument(
                    f"{share:g} % are {kind}s, but no {kind} has a weight; set one of {', '.join(actions)}"
                )

    def shares(self) -> dict[str, float]:
        """Return the share of each kind of operation; all shares add up to 1."""
        shares: dict[str, float] = {}
        for share, actions in ((self.reads / 100, READS), (1 - self.reads / 100, WRITES)):
            whole = sum(self.weights.get(action, 0.0) for action in actions) or 1.0
            shares |= {action: share * self.weights.get(action, 0.0) / whole for action in actions}
        return shares

    def prepare(self, store: Store, ground: str) -> None:
        for n in range(self.schemas):
            schema = store.schemas.create(f"{ground}.s{n}")
            store.tables.create_many(
                schema, ({"name": f"t{i}", "columns": [_ID]} for i in range(n, self.tables, self.schemas))
            )

    def work(self, calls: Calls, me: Me) -> Iterator[float]:
        turn = _Turn(self, calls, me)
        shares = self.shares()
        actions = Weighted([*shares], shares.values())
        while True:
            turn.take(actions.draw(me.dice))
            yield me.dice.uniform(0, 2 * self.think) if self.think else 0.0


def check_number(what: str, value: object, most: float) -> None:
    """Raise InvalidArgument unless ``value`` is a number from 0 to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise InvalidArgument(f"{what} is a number from 0 to {most:g}, not {value!r}")


class _Turn:
    """One client's operations: one method for each kind."""

    def __init__(self, mix: Mix, calls: Calls, me: Me) -> None:
        self._mix, self._calls, self._me = mix, calls, me
        self._tables = zipf(mix.tables, mix.skew)
        self._places: dict[int, Whereabouts] = {}  # only for tables that were missing at their first path
        self._mine: deque[str] = deque()
        self._number = 0

    def take(self, action: str) -> None:
        """Do one operation on a randomly drawn table."""
        self._number += 1
        table = self._tables.draw(self._me.dice)
        getattr(self, f"_{action}")(table)
        if self._calls.missed and action not in ("create", "drop"):
            self._place(table).missed()

    def _schema(self, table: int) -> str:
        return f"{self._me.ground}.s{table % self._mix.schemas}"

    def _place(self, table: int) -> Whereabouts:
        if table not in self._places:
            near = [self._schema(table)]
            if self._mix.weights.get("move") and self._mix.schemas > 1:
                near.append(self._schema(table + 1))
            self._places[table] = Whereabouts([f"{schema}.{name}{table}" for name in "tx" for schema in near])
        return self._places[table]

    def _path(self, table: int) -> str:
        return self._places[table].here if table in self._places else f"{self._schema(table)}.t{table}"

    def _load(self, table: int) -> None:
        self._calls.load(self._path(table))

    def _exists(self, table: int) -> None:
        self._calls.exists(self._path(table))

    def _list(self, table: int) -> None:
        self._calls.list(self._schema(table))

    def _alter(self, table: int) -> None:
        self._calls.alter(self._path(table), SetProperty(f"client-{self._me.number}", str(self._number)))

    def _create(self, table: int) -> None:
        path = f"{self._schema(table)}.n{self._me.tag}_{self._number}"
        if self._calls.create(path, columns=[_ID]) is not None:
            self._mine.append(path)

    def _drop(self, table: int) -> None:
        if self._mine:
            self._calls.drop(self._mine.popleft())
        else:
            self._create(table)

    def _rename(self, table: int) -> None:
        self._go(table, sideways=False)

    def _move(self, table: int) -> None:
        self._go(table, sideways=True)

    def _go(self, table: int, *, sideways: bool) -> None:
        place = self._place(table)
        parent = place.here.rpartition(".")[0]
        ways = [to for to in place.others() if (to.rpartition(".")[0] != parent) == sideways]
        to = self._me.dice.choice(ways or place.others())
        if self._calls.rename(place.here, to) is not None:
            place.elsewhere(to)

    def _transaction(self, table: int) -> None:
        """Read two tables, and write one of them."""
        read, written = self._path(self._tables.draw(self._me.dice)), self._path(table)

        def fn(within: Within) -> None:
            entity = within.load(written)
            seen = within.load(read) if read != written else entity
            within.alter(entity, SetProperty("seen", f"{seen.version} by {self._me.tag}_{self._number}"))

        self._calls.transaction(written, fn)

    def _freeze(self, table: int) -> None:
        path = self._path(table)

        def fn(within: Within) -> None:
            within.alter(within.load(path), SetProperty("frozen", f"{self._me.tag}_{self._number}"))

        self._calls.freeze(path.rpartition(".")[0], fn, ttl=_TTL, timeout=_TTL)
