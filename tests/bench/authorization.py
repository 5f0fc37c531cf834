"""Measure calls of a user beside the same calls of a trusted store; a part of ``python -m tests.bench.governance``."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg

import metastore as ms
from metastore.governance.evidence import Remembered
from metastore.store import Store
from tests.bench.core.setting import CATALOG, COLUMNS, Setting
from tests.bench.figures import Bar, reported
from tests.bench.timing import ratios

__all__ = ["AUTHORIZED", "measure"]

AUTHORIZED = {
    "list_1000_authorized_vs_plain": Bar("<=", 1.3),
    "list_10_of_100k_ms": reported,
    "load_authorized_vs_plain": Bar("<=", 1.2),
    "load_authorized_unremembered_vs_plain": Bar("<=", 2.0),
    "alter_authorized_vs_plain": Bar("<=", 1.2),
    "alter_authorized_round_trips_extra": Bar("<=", 0.0),
    "create_authorized_vs_plain": Bar("<=", 1.4),
    "load_200_roles_vs_1": Bar("<=", 1.5),
    "load_200_roles_unremembered_vs_1": reported,
    "revoke_hot_role_p95_ms": Bar("<=", 200.0),
}
InTurns = Callable[..., tuple[list[float], list[float]]]
_WORDS = ("use_catalog", "use_schema", "select_table", "modify_table", "create_table")
_ASKS = (
    *("resolve", "resolve_rights", "resolve_holding", "by_id", "by_id_holding", "hold", "rights"),
    *("commit", "reserve_ids"),
)
_CREATORS = 32


def measure(setting: Setting, store: Store, url: str, in_turns: InTurns) -> None:
    """Measure all of it, in the lake whose schema ``s`` has very many tables ``t…``."""
    ann = _prepared(store)
    _lists(setting, store, ann, in_turns)
    _calls(setting, store, ann, in_turns)
    _roles(setting, store, url, in_turns)
    _hot_role(setting, store)


def _prepared(store: Store) -> Store:
    """Let ann read and write the schema ``l``, which has 1,000 tables, of which 20 are denied."""
    store.schemas.create(f"{CATALOG}.l")
    rows = [{"name": f"t{n:04}", "columns": COLUMNS} for n in range(1_000)]
    store.tables.create_many(f"{CATALOG}.l", rows)
    role, user = store.roles.create("lake.r"), store.users.create("lake.ann")
    store.roles.assign(role, user)
    store.roles.grant(role, "use_catalog", CATALOG, kind="catalog")
    for word in _WORDS[1:]:
        store.roles.grant(role, word, f"{CATALOG}.l", kind="schema")
    for n in range(0, 1_000, 50):
        store.roles.grant(role, "select_table", f"{CATALOG}.l.t{n:04}", kind="table", effect="deny")
        store.roles.grant(role, "modify_table", f"{CATALOG}.l.t{n:04}", kind="table", effect="deny")
    return store.as_user("ann")


def _lists(setting: Setting, store: Store, ann: Store, in_turns: InTurns) -> None:
    path = f"{CATALOG}.l"
    assert len(list(ann.tables.list(path))) == 980
    plain, user = in_turns(setting, lambda: list(store.tables.list(path)), lambda: list(ann.tables.list(path)), 10)
    setting.figures.record("list_1000_authorized_vs_plain", ratios(user, plain))
    few, bob = store.roles.create("lake.few"), store.users.create("lake.bob")
    store.roles.assign(few, bob)
    store.roles.grant(few, "use_catalog", CATALOG, kind="catalog")
    store.roles.grant(few, "use_schema", f"{CATALOG}.s", kind="schema")
    for n in range(10):
        store.roles.grant(few, "select_table", f"{CATALOG}.s.t{n * 900}", kind="table")
    sees = store.as_user("bob")
    assert len(list(sees.tables.list(f"{CATALOG}.s"))) == 10
    ten, _ = in_turns(setting, lambda: list(sees.tables.list(f"{CATALOG}.s")), lambda: None, 20)
    setting.figures.record("list_10_of_100k_ms", ten)


def _calls(setting: Setting, store: Store, ann: Store, in_turns: InTurns) -> None:
    path = f"{CATALOG}.l.t0001"
    plain, user = in_turns(setting, lambda: store.tables.load(path), lambda: ann.tables.load(path))
    setting.figures.record("load_authorized_vs_plain", ratios(user, plain))
    plain, user = in_turns(setting, lambda: store.tables.load(path), lambda: _forgetting(ann).tables.load(path))
    setting.figures.record("load_authorized_unremembered_vs_plain", ratios(user, plain))
    held: dict[Store, Any] = {store: store.tables.load(path), ann: ann.tables.load(f"{CATALOG}.l.t0002")}

    def alter(one: Store) -> None:
        held[one] = one.tables.alter(held[one], ms.SetProperty("n", str(held[one].version)))

    plain, user = in_turns(setting, lambda: alter(store), lambda: alter(ann))
    setting.figures.record("alter_authorized_vs_plain", ratios(user, plain))
    setting.figures.record("alter_authorized_round_trips_extra", [_asks(store, ann, alter)])
    names = (f"n{n}" for n in range(1_000_000))

    def create(one: Store) -> None:
        one.tables.create(f"{CATALOG}.l.{next(names)}", columns=COLUMNS)

    plain, user = in_turns(setting, lambda: create(store), lambda: create(ann))
    setting.figures.record("create_authorized_vs_plain", ratios(user, plain))


def _forgetting(view: Store) -> Store:
    """Return the same user, of whose rights nothing is remembered."""
    assert view._session.access is not None
    view._session.access._facts = Remembered()
    return view


def _asks(store: Store, ann: Store, call: Callable[[Store], None]) -> float:
    """Return how many more questions the call of ann asks the database."""
    counts = [0, 0]
    for n, one in enumerate((store, ann)):
        backend = one._session.access.backend if one._session.access is not None else one._session.backend

        def counted(name: str, n: int = n, backend: Any = backend) -> Callable[..., Any]:
            ask = getattr(type(backend), name)

            def count(*arguments: Any, **options: Any) -> Any:
                counts[n] += 1
                return ask(backend, *arguments, **options)

            return count

        for name in _ASKS:
            setattr(backend, name, counted(name))
        call(one)
        for name in _ASKS:
            delattr(backend, name)
    return float(counts[1] - counts[0])


def _roles(setting: Setting, store: Store, url: str, in_turns: InTurns) -> None:
    """Compare a user with one role with one that has 200 roles of 500 grants each."""
    count = 20 if setting.quick else 200
    cat = store.users.create("lake.cat")
    for n in range(count):
        store.roles.assign(store.roles.create(f"lake.many{n}"), cat)
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(_GRANTS)
        connection.execute("VACUUM ANALYZE")
    store.roles.grant("lake.many0", "use_catalog", CATALOG, kind="catalog")
    store.roles.grant("lake.many1", "use_schema", f"{CATALOG}.l", kind="schema")
    store.roles.grant("lake.many2", "select_table", f"{CATALOG}.l", kind="schema")
    path, one, many = f"{CATALOG}.l.t0003", store.as_user("ann"), store.as_user("cat")
    first, second = in_turns(setting, lambda: one.tables.load(path), lambda: many.tables.load(path))
    setting.figures.record("load_200_roles_vs_1", ratios(second, first))
    first, second = in_turns(
        setting, lambda: _forgetting(one).tables.load(path), lambda: _forgetting(many).tables.load(path)
    )
    setting.figures.record("load_200_roles_unremembered_vs_1", ratios(second, first))


_GRANTS = """INSERT INTO relation
  (from_id, kind, slot, column_id, value, id, to_id, version, created_by, created_at, modified_by, modified_at)
SELECT r.id, 'grant', t.id, 0, 'allow:select_table', nextval('entity_id_seq'), t.id, 1, 'bench', 1, 'bench', 1
FROM (SELECT id FROM guard WHERE kind = 'role' AND name LIKE 'many%') r
CROSS JOIN (SELECT id FROM guard WHERE kind = 'table' AND name LIKE 't%' ORDER BY id LIMIT 500) t"""
"""500 grants for each of the roles, below the managers: one by one they would take minutes."""


def _hot_role(setting: Setting, store: Store) -> None:
    """Revoke a right of the role on which the creates of 32 threads rest."""
    stop, times, role = threading.Event(), list[float](), store.roles.load("lake.r")
    creators = [threading.Thread(target=_create, args=(store, n, stop)) for n in range(_CREATORS)]
    with contextlib.ExitStack() as stack:
        for one in creators:
            stack.callback(one.join)
        stack.callback(stop.set)
        for one in creators:
            one.start()
        time.sleep(0.5)
        for _ in range(setting.count(100)):
            store.roles.grant(role, "use_secret", CATALOG, kind="catalog")
            began = time.perf_counter()
            store.roles.revoke(role, "use_secret", CATALOG, kind="catalog")
            times.append(1000 * (time.perf_counter() - began))
    setting.figures.record("revoke_hot_role_p95_ms", [sorted(times)[int(0.95 * len(times))]])


def _create(store: Store, number: int, stop: threading.Event) -> None:
    ann, made = store.as_user("ann"), 0
    while not stop.is_set():
        ann.tables.create(f"{CATALOG}.l.hot{number}_{made}")
        made += 1
