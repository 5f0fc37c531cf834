"""What each public method answers, which says how its cost may grow. Every method has a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final

import metastore as ms
from tests.bad_input.surface import TABLE, Method, good

__all__ = ["ANSWERS", "LINES", "MORE", "Answer", "call_of"]

Answer = str
"""``one``: an entity, a page, or a write: it costs the same in a large store. ``many``: items, and the cost of each
stays the same. ``all``: it reads the whole store, or all of its history. ``none``: it asks the database nothing, and is
not called.
"""


def _lines(**kinds: str) -> dict[str, Answer]:
    return {name: answer for answer, names in kinds.items() for name in names.split()}


LINES: Final[Mapping[str, Answer]] = _lines(
    one="""store.allowed store.at store.bind store.changes_page store.diff store.outcome store.pin store.relations
    store.reveal store.revert store.run store.unpin consumer.commit consumer.read consumer.reset consumer.run
    lease.publish lease.stage cache.evict cache.of_user catalogs.alter catalogs.begin_drop catalogs.create
    catalogs.create_many catalogs.disable catalogs.drop catalogs.dropped_page catalogs.enable catalogs.exists
    catalogs.history_page catalogs.load catalogs.load_many catalogs.names_page catalogs.page catalogs.purge
    catalogs.rename catalogs.restore consumers.drop consumers.get crawls.drop crawls.exists crawls.load
    crawls.names_page crawls.newest crawls.page crawls.put_many drops.resume filesets.create functions.create
    groups.add groups.create groups.remove job_templates.create jobs.cancel jobs.create leases.acquire
    leases.acquire_many leases.audit leases.bound leases.break_ leases.holder leases.join leases.mirror leases.noted
    leases.noted_for leases.release leases.renew metalakes.create models.add_version models.alter_version models.create
    models.drop_alias models.drop_version models.load_version models.set_alias models.versions_page owners.of
    owners.remove owners.set partitions.begin_drop partitions.create policies.attach policies.attach_many
    policies.create policies.detach policies.disable policies.enable policies.on policies.on_columns roles.assign
    roles.create
    roles.grant roles.revoke roles.unassign schemas.create schemas.exclusive sources.figures sources.load_many
    sources.register sources.relations sources.rows sources.tables sources.tables_and_drops statistics.of
    statistics.of_partitions
    statistics.remove statistics.set tables.create tags.create topics.create users.create views.create store.losses
    store.ping store.position cache.members lease.check lease.release lease.renew sources.now""",
    many="""consumers.list drops.pending store.pins store.changes store.find catalogs.dropped catalogs.history
    catalogs.list
    catalogs.names crawls.list crawls.names groups.members leases.list models.versions owners.owned_by
    policies.targets roles.grants roles.members roles.of sources.below users.groups""",
    all="""consumer.lag store.backup store.export_to store.gc store.find_page store.import_from store.stats store.verify
    secrets.rotate
    secrets.scrub""",
    none="""cache.stats leases.close store.close store.metrics lease.closed lease.end lease.is_over lease.keep
    lease.refused
    lease.seconds_left lease.tokens transaction.enter_line transaction.leave_scope store.as_user
    store.manager store.replica store.transaction lease.watch crawls.event crawls.row partitions.row sources.row
    statistics.row""",
)

_MODEL: Final = "m.c.s.hubmodel"
MORE: Final[Mapping[str, tuple[Answer, Callable[[ms.Store], Any]]]] = {
    "load a table": ("one", lambda store: store.tables.load("m.c.s.t00000001")),
    "load many tables": ("one", lambda store: store.tables.load_many([f"m.c.s.t{n:08}" for n in range(500)])),
    "a page of tables": ("one", lambda store: store.tables.page("m.c.s")),
    "a page of few": ("one", lambda store: store.tables.page("m.c.small")),
    "names of few": ("one", lambda store: store.tables.names_page("m.c.small")),
    "a page by prefix": ("one", lambda store: store.tables.page("m.c.s", prefix="t000001")),
    "names of tables": ("many", lambda store: store.tables.names("m.c.s")),
    "all tables": ("many", lambda store: store.tables.list("m.c.s")),
    "a deep schema": ("one", lambda store: store.schemas.load(".".join(["m.c", *(f"deep{n:02}" for n in range(60))]))),
    "a page of history": ("one", lambda store: store.tables.history_page("m.c.s.hub")),
    "history": ("many", lambda store: store.tables.history("m.c.s.hub")),
    "a page of partitions": ("one", lambda store: store.partitions.page("m.c.s.hub")),
    "partitions": ("many", lambda store: store.partitions.list("m.c.s.hub")),
    "tags on a table": ("many", lambda store: store.tags.on("m.c.s.hub", kind="table")),
    "what has a tag": ("many", lambda store: store.tags.targets("m.common")),
    "attach to what has most": ("one", lambda store: store.tags.attach("m.c.s.hub", "m.common", kind="table")),
    "detach from what has most": ("one", lambda store: store.tags.detach("m.c.s.hub", "m.common", kind="table")),
    "roles of one": ("many", lambda store: store.roles.of("m.rita")),
    "find in a scope": ("one", lambda store: store.find("m.c.small", name="t*")),
    "find a rare kind": ("one", lambda store: store.find("m", kind="model")),
    "find a prefix": ("one", lambda store: store.find(name="t0000010*")),
    "find a property": ("all", lambda store: store.find("m.c.s", properties={"nobody": "has it"})),
    "changes for one": ("all", lambda store: store.changes(limit=5)),
    "versions of a model": ("many", lambda store: store.models.versions(_MODEL)),
    "the newest changes": ("one", lambda store: store.changes_page(after=None, size=100)),
    "lag": ("all", lambda store: store.consumers.get("lag", start="beginning").lag()),
    "pins": ("one", lambda store: store.pins()),
    "at: load": ("one", lambda store: _then(store).tables.load("m.c.s.t00000001")),
    "at: load many": ("one", lambda store: _then(store).tables.load_many([f"m.c.s.t{n:08}" for n in range(500)])),
    "at: a page": ("one", lambda store: _then(store).tables.page("m.c.s")),
}
"""Calls on what is skewed, beside those that every method gets."""


ANSWERS: Final[Mapping[str, Answer]] = {**LINES, **{name: answer for name, (answer, _) in MORE.items()}}


def _then(store: ms.Store) -> Any:
    return store.at(store.position())


_NUMBERS: Final = count()
_BELOW: Final = ("dropped", "dropped_page", "list", "names", "names_page", "page")
_CALLS: Final[Mapping[str, Callable[[ms.Store], Any]]] = {
    "store.at": lambda store: store.at(store.position()),
    "catalogs.restore": lambda store: (store.tables.drop(TABLE), store.tables.restore(TABLE)),
    "leases.release": lambda store: store.leases.release(_lease(store)),
    "leases.renew": lambda store: store.leases.renew(_lease(store)),
    "leases.join": lambda store: store.leases.join((lease := _lease(store)).name, lease.token or 0),
    "models.load_version": lambda store: store.models.load_version(_MODEL, 1),
    "models.set_alias": lambda store: store.models.set_alias(_MODEL, "al", 1),
    "partitions.begin_drop": lambda store: store.partitions.begin_drop("m.c.s.hub", "p=00000001").roll_back(),
    "roles.grant": lambda store: store.roles.grant("m.role1", "select_table", TABLE, kind="table"),
    "sources.relations": lambda store: store.sources.relations(store.tables.load(TABLE)),
    "sources.rows": lambda store: store.sources.rows(store.tables.load(TABLE)),
}
"""Calls whose arguments belong together."""


def _lease(store: ms.Store) -> ms.Lease:
    return store.leases.acquire(f"held{next(_NUMBERS)}")


def call_of(method: Method, store: ms.Store) -> Callable[[], Any]:
    """Return a call of a method with good arguments: on tables, where they have it."""
    asked = method
    if method.owner == "catalogs" and method.name != "create" and hasattr(store.tables, method.name):
        method = Method("tables", method.name, method.parameters)
    if method.name in ("create", "create_many", "rename", "acquire", "acquire_many"):
        return _new(method, store)
    if str(asked) in _CALLS:
        return lambda: _CALLS[str(asked)](store)
    if method.name in _BELOW and method.owner == "tables":
        return lambda: getattr(store.tables, method.name)("m.c.s")
    arguments, named = list[Any](), dict[str, Any]()
    for one in method.parameters:
        if one.default is not one.empty or one.kind is one.VAR_KEYWORD:
            continue
        given = good(method, one.name, store)
        if one.kind is one.KEYWORD_ONLY:
            named[one.name] = given
        else:
            arguments.append(given)
    found = method.on(store)
    if method.name == "begin_drop":
        return lambda: found(*arguments, **named).roll_back()
    return lambda: found(*arguments, **named)


def _new(method: Method, store: ms.Store) -> Callable[[], Any]:
    """Return a call that needs a name which is not taken."""
    name, found = f"new{next(_NUMBERS)}", method.on(store)
    if method.name == "create_many":
        return lambda: found("m.c.s", [{"name": name}])
    if method.name == "rename":
        return lambda: found(TABLE, name)
    if method.owner == "leases":
        return lambda: found(name if method.name == "acquire" else [name])
    given = {
        one.name: good(method, one.name, store)
        for one in method.parameters[1:]
        if one.default is one.empty and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    }
    if method.owner == "partitions":
        return lambda: found(TABLE, name, values={})
    above = given.pop("path", good(method, "path", store)).rpartition(".")[0]
    return lambda: found(f"{above}.{name}".lstrip("."), **given)
